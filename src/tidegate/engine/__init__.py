"""Runs programs over tables: columns in memory, events as Arrow, outcomes as Arrow."""
