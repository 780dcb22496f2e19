"""What Tidegate costs, measured: experiments that verify what they time and print ratios.

    limit            the engine beside a program written by hand for one ledger
    spark_pipeline   a streaming pipeline with `transact` beside one that passes rows through
    work             the same transactions on small and on large tables; memory and loading
    strategies       adaptive beside every fixed strategy, over a grid of workloads (`grids`)
    scaling          every strategy with more and more workers, beside threads that share nothing
    dynamic          a stream whose character changes
    groups           two groups in the same batches: several strategies at once beside each single one
    graph            what building the graph of a batch costs, in time and in memory
    peers            events per second beside what another system's released code came to

An experiment is a short declaration; `harness` runs its variants interleaved, throws the run away
if a result is wrong, and writes JSON lines; `bars` says what a number must reach; `plots` draws.
"""
