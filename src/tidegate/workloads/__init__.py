"""Programs that behave like real users of Tidegate: for the demo, the benchmarks and the tests.

Each workload declares tables and transactions, generates events from a seed, and verifies a run
against the plain Python functions.

    ledger             deposits and transfers, small enough for the demo
    streaming_ledger   money and assets move between owners                   (SL)
    grep_sum           means of some records written to others                (GS)
    bidding            bids beside sellers who change prices and stock        (OB)
    tolls              a toll road whose price depends on the traffic         (TP)
    dynamic            the streaming ledger in thirteen phases
    leaderboard        a talent show as a dataflow graph
    chains             dataflow graphs of any length
    mixed              plain transactions beside a graph
    tpcx_bb            five queries over clicks and sales, as ordered pipelines

`workload` holds what they have in common, `cost` what an operation costs. Workloads use the public
API alone (`import tidegate as tg`).
"""
