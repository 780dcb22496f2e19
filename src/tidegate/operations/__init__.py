"""The narrow waist: the data forms in which compiler, engine and files speak to each other."""
