"""The undo log of windows: every word that changes is noted first.

`journal` holds (index, what stood there) for each word that changed; `state` says how long it is and what is missing:

    state  0 LENGTH of the journal    1 NEEDS    2 WINDOW: base of the window that needs room
           3 PART: 0 for the ring, n + 1 for slot n

When the journal or a window is full, NEEDS says so and nothing is written any more; who called takes the changes back
with `undo` and lets `state.windows.Windows.make_room` do the rest.
"""

from __future__ import annotations

from tidegate.foundation.jit import inline, kernel

LENGTH, NEEDS, WINDOW, PART, STATE_WORDS = 0, 1, 2, 3, 4
NOTHING, JOURNAL_ROOM, WINDOW_ROOM = 0, 1, 2


@inline
def put(heap, journal, state, index, value):  # type: ignore[no-untyped-def]
    """Change one word, remembering what stood there; does nothing once something is missing."""
    if state[NEEDS] != NOTHING:
        return
    length = state[LENGTH]
    if length >= journal.shape[0]:
        state[NEEDS] = JOURNAL_ROOM
        return
    journal[length, 0], journal[length, 1] = index, heap[index]
    heap[index] = value
    state[LENGTH] = length + 1


@kernel
def undo(heap, journal, state, mark):  # type: ignore[no-untyped-def]
    """Undo all changes made since the journal had the length `mark`, the newest first."""
    for position in range(state[LENGTH] - 1, mark - 1, -1):
        heap[journal[position, 0]] = journal[position, 1]
    state[LENGTH] = mark


@inline
def ask_room(state, base, part):  # type: ignore[no-untyped-def]
    """Note that a window is full, if nothing else is missing."""
    if state[NEEDS] == NOTHING:
        state[NEEDS], state[WINDOW], state[PART] = WINDOW_ROOM, base, part
