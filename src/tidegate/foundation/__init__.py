"""What everything else stands on: errors, the door to Numba, exact arithmetic, the door to files."""
