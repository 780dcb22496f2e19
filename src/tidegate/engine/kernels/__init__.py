"""Loops over arrays, compiled: key look-ups, strings, and what is done to every event of a batch."""
