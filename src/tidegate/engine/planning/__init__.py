"""From a batch of events to the graph of its operations."""
