"""What Tidegate costs, measured: experiments that verify what they time and print ratios.

    limit            the engine beside a program written by hand for one ledger
    spark_pipeline   a streaming pipeline with `transact` beside one that passes rows through
    work             the same transactions on small and on large tables; memory and loading
    strategies       adaptive beside every fixed strategy, over a grid of workloads (`grids`)
    scaling          every strategy with more and more workers, beside threads that share nothing
    dynamic          a stream whose character changes

An experiment is a short declaration; `harness` runs its variants interleaved, throws the run away
if a result is wrong, and writes JSON lines; `plots` draws.
"""
