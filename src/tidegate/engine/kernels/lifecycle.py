"""The life cycle of an operation, as a table.

    BLOCKED    it waits for versions that it reads
    READY      nothing that it waits for is left
    EXECUTED   it ran, and its versions can be read
    ABORTED    its transaction does not happen: readers skip its versions

                         eager aborts                        lazy aborts
    T1 BLOCKED->READY    the last transaction it reads       the last operation it reads from ran
                         from was decided
    T2 READY->EXECUTED   it ran                              it ran
    T3 BLOCKED->EXECUTED never                               in a chain: what it reads from ran, nobody signalled
    T4 any->ABORTED      its transaction was decided so      it failed, or its transaction is taken back
    T5 EXECUTED->READY   never                               a transaction it read from was taken back,
       ABORTED->READY                                        and nothing else it reads from runs again
    T6 EXECUTED->BLOCKED never                               something that it reads from runs again
       ABORTED->BLOCKED

`kernels.execution` and `kernels.aborts` make these transitions; `repair` makes two of them at a time (T5 and T2).
"""

from __future__ import annotations

BLOCKED = 0
READY = 1
EXECUTED = 2
ABORTED = 3

STATES: dict[int, str] = {BLOCKED: "blocked", READY: "ready", EXECUTED: "executed", ABORTED: "aborted"}

TRANSITIONS: dict[str, tuple[tuple[int, int], ...]] = {
    "T1": ((BLOCKED, READY),),
    "T2": ((READY, EXECUTED),),
    "T3": ((BLOCKED, EXECUTED),),
    "T4": ((BLOCKED, ABORTED), (READY, ABORTED), (EXECUTED, ABORTED)),
    "T5": ((EXECUTED, READY), (ABORTED, READY)),
    "T6": ((EXECUTED, BLOCKED), (ABORTED, BLOCKED)),
}
"""Every transition that an operation can make; with eager aborts only T1, T2 and T4 happen."""
