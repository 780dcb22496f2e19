"""Chooses how to run a batch from what was measured."""
