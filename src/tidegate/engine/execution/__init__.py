"""Workers that run the operations of a batch."""
