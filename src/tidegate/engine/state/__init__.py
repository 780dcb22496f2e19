"""Where rows live: columns per field, an index over the keys, and one pool for all strings."""
