"""Loops over the bytes of the command log, compiled to machine code."""
