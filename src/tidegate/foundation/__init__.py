"""What all other packages use: errors, Numba, exact arithmetic, files."""
