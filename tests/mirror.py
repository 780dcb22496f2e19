"""Which test covers a module that has none of its own name: what works together is tested together.

A test stands here for the modules that it cannot run without. Reasons are the headings.
"""

from __future__ import annotations

TESTED_BY: dict[str, tuple[str, ...]] = {
    # Declarations, which only compile or are refused; what they mean is tested where they run.
    "api/test_transaction.py": ("api/control.py",),
    "api/test_dataflow.py": ("api/stream.py", "api/window.py", "compiler/graphs.py", "operations/flow.py"),
    "api/test_table.py": ("operations/layout.py",),
    # The emitter's floors, each of which emits a part of one body: bodies are compared with Python as a whole.
    "compiler/test_bodies.py": (
        "compiler/built_ins.py",
        "compiler/calls.py",
        "compiler/emission.py",
        "compiler/expressions.py",
        "compiler/functions.py",
        "compiler/loops.py",
        "compiler/program.py",
        "compiler/statements.py",
        "compiler/transactions.py",
        "compiler/unit.py",
        "operations/plan.py",
    ),
    "compiler/test_operators.py": ("compiler/records.py", "operations/pipeline.py"),
    "compiler/test_arithmetic.py": ("compiler/numbers.py",),
    "compiler/test_values.py": ("compiler/decimals.py", "compiler/times.py"),
    "operations/test_values.py": (
        "operations/decimals.py",
        "operations/kinds.py",
        "operations/texts.py",
        "operations/times.py",
    ),
    "compiler/test_refusals.py": (
        "compiler/declaration.py",
        "compiler/signatures.py",
        "compiler/source.py",
        "compiler/types.py",
        "foundation/errors.py",
        "foundation/places.py",
    ),
    "compiler/test_slicing.py": ("compiler/run_ahead.py", "compiler/slices.py"),
    "compiler/test_operate.py": ("foundation/memory.py",),
    # Graphs: what the compiler writes for them is seen when they run.
    "engine/graphs/test_walk.py": (
        "compiler/flow_steps.py",
        "compiler/flows.py",
        "compiler/streams.py",
        "engine/graphs/group_run.py",
        "engine/kernels/flows.py",
        "engine/state/journal.py",
        "workloads/leaderboard.py",
    ),
    "engine/graphs/test_steps.py": ("compiler/flow_traces.py",),
    "engine/test_stages.py": ("compiler/stages.py",),
    "engine/test_expiry.py": ("compiler/clock.py",),
    "engine/graphs/test_outputs.py": ("engine/graphs/store.py", "engine/state/streams.py"),
    "engine/graphs/test_history.py": ("engine/state/history.py",),
    "engine/kernels/test_windows.py": (
        "engine/kernels/ranks.py",
        "engine/kernels/window_journal.py",
        "engine/state/windows.py",
    ),
    # The engine, by what its users see of it.
    "engine/test_execute.py": ("engine/arguments.py", "engine/single.py"),
    "engine/test_traps.py": (
        "engine/arrival.py",
        "engine/batch.py",
        "engine/core.py",
        "engine/inputs.py",
        "engine/interpreter.py",
    ),
    "test_surface.py": ("embedding.py", "operations/outcomes.py"),
    "foundation/test_interrupts.py": ("engine/kernels/signals.py",),
    # Several workers: strategies equal serial execution, however they are built.
    "engine/execution/test_strategies.py": (
        "engine/execution/executions.py",
        "engine/execution/machine.py",
        "engine/execution/runner.py",
        "engine/execution/scheduler.py",
        "engine/execution/serial.py",
        "engine/execution/timing.py",
        "operations/decision.py",
    ),
    "engine/execution/test_workers.py": ("engine/worker_pool.py",),  # a protocol
    "engine/execution/test_lifecycle.py": ("engine/kernels/aborts.py", "engine/kernels/lifecycle.py"),
    "engine/kernels/test_execution.py": ("engine/kernels/operation.py",),
    "engine/kernels/test_kernels.py": (
        "engine/kernels/events.py",
        "engine/kernels/index.py",
        "engine/kernels/strings.py",
    ),
    "engine/state/test_deadlines.py": ("engine/kernels/deadlines.py",),
    "engine/planning/test_builder.py": ("engine/kernels/graph.py",),
    "engine/adaptation/test_sampling.py": ("engine/kernels/neighbours.py",),
    # Ordered pipelines: whatever runs them, their output is the sequential one.
    "ordering/test_pipeline.py": (
        "ordering/flow.py",
        "ordering/graph.py",
        "ordering/heuristics.py",
        "ordering/records.py",
        "ordering/report.py",
        "ordering/runtime.py",
        "ordering/states.py",
        "ordering/steps.py",
        "ordering/strings.py",
        "ordering/kernels/choosing.py",
        "ordering/kernels/layout.py",
        "ordering/kernels/putting.py",
    ),
    # Engines on a directory, and states: their parts are crashed, damaged and reopened together.
    "durability/test_logged.py": (
        "durability/checkpoints.py",
        "durability/early_log.py",
        "durability/once_keys.py",
        "commands/log_records.py",
    ),
    "durability/test_command_log.py": ("durability/log_segments.py",),
    "durability/test_replayed_calls.py": ("durability/replaying.py",),
    "durability/test_commands.py": ("durability/value_bytes.py",),
    "durability/test_versions.py": ("durability/version_info.py", "durability/version_reader.py"),
    "durability/test_adoption.py": ("durability/administration.py", "durability/stored_rows.py"),
    "spark/test_awaiting.py": ("durability/outcome_log.py",),
    # Commands, by what they print.
    "commands/test_log.py": ("commands/log_check.py",),
    "commands/test_state.py": ("commands/state_printing.py",),
    "commands/test_bench.py": ("commands/bench_run.py",),
    "test_cli.py": ("commands/demo.py", "commands/version_list.py", "commands/warm.py"),
    # Spark: one function, and what it is made of.
    "spark/test_transact_batch.py": ("spark/transact.py",),
    "spark/test_transact_streaming.py": ("spark/release.py",),
    "spark/test_transact_log.py": ("spark/known_programs.py",),
    "spark/test_wrong_arguments.py": ("spark/worker_python.py",),
    "spark/test_task.py": ("spark/columns.py",),
    # Kits and workloads.
    "testing/test_kit.py": ("testing/assertions.py", "testing/plain.py", "testing/source.py"),
    "workloads/test_grep_sum.py": ("workloads/written.py",),
    "benchmarks/test_stages.py": ("workloads/chains.py",),
    "benchmarks/test_logging_cost.py": ("benchmarks/charts.py",),
    "benchmarks/test_reopening.py": ("benchmarks/memory.py",),
    "benchmarks/test_mixed.py": ("workloads/mixed.py",),
    "benchmarks/test_ordering_partitions.py": ("benchmarks/ordering_buffers.py",),
    "commands/test_bench_ordering.py": ("benchmarks/ordering_heuristics.py",),
    # Benchmarks that verify what they time: `make smoke` runs them, and nothing of them is used elsewhere.
    "../Makefile": (
        "benchmarks/leaderboard.py",
        "benchmarks/limit.py",
        "benchmarks/spark_ordered.py",
        "benchmarks/spark_plots.py",
        "benchmarks/spark_pipeline.py",
        "benchmarks/spark_workers.py",
        "benchmarks/triggers.py",
        "benchmarks/windows.py",
        "benchmarks/work.py",
        "commands/bench_engine.py",
        "commands/bench_streams.py",
    ),
}
