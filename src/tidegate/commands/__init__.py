"""The commands behind `tidegate`: demo, state, bench, warm.

Each module declares its options with typer and imports what it runs only when it runs: showing help
must not wait for Spark.
"""
