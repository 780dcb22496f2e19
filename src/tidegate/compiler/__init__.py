"""From a plain Python function to operations over a table's columns."""
