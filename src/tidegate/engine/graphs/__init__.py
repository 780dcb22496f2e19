"""Dataflow graphs: streams, windows and groups that run in rounds, and what they remember between batches."""
