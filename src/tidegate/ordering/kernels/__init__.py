"""Queues, reorder buffers and the worker loop of an ordered pipeline, over one array of 64-bit words."""
