"""State on disk: the files of versions, how they form a history, and who may add to it."""
