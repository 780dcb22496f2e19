"""Programs that behave like real users of Tidegate: for the demo, the benchmarks and the tests.

Each workload declares tables and transactions, generates events from a seed, and verifies a run
against the plain Python functions. Workloads use the public API alone (`import tidegate as tg`).
"""
