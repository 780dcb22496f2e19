"""What Tidegate costs, measured: experiments that verify what they time and print ratios.

`commands/bench.py` lists them all. An experiment is a short declaration; `harness` runs its variants interleaved,
discards the run if a result is wrong, and writes JSON lines. `grids` runs one experiment over many workloads, `bars`
says what a number must reach, `charts` and `plots` draw.
"""
