from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.benchmarks.plain_pipeline import PlainPipeline, differs


@dataclass
class Word:
    group: int
    number: int


@dataclass
class Seen:
    numbers: list[int] = field(default_factory=list)


def doubled(word: Word) -> Word:
    return Word(word.group, 2 * word.number)


def small(word: Word) -> Word | None:
    return word if word.number < 7 else None


def twice(word: Word) -> list[Word]:
    return [word, Word(word.group, -word.number)]


def is_first(word: Word) -> bool:
    return word.group == 1


def so_far(state: Seen, word: Word) -> Word:
    state.numbers.append(word.number)
    return Word(word.group, sum(state.numbers))


TABLE = pa.table({"group": [1, 2, 1, 2], "number": [1, 2, 3, 4]})


def numbers(pipeline: PlainPipeline) -> list[int]:
    return [word.number for word in pipeline.run(TABLE)]


def test_operators_give_one_output_none_or_many() -> None:
    words = PlainPipeline(Word)
    assert numbers(words.map(doubled)) == [2, 4, 6, 8]
    assert numbers(words.map(doubled).map(small)) == [2, 4, 6]
    assert numbers(words.flat_map(twice)) == [1, -1, 2, -2, 3, -3, 4, -4]
    assert numbers(words.filter(is_first)) == [1, 3]


def test_a_key_has_a_state_of_its_own_and_every_run_begins_with_fresh_ones() -> None:
    keyed = PlainPipeline(Word).stateful(so_far, key="group", partitions=3)
    assert numbers(keyed) == numbers(keyed) == [1, 2, 4, 6]
    assert numbers(PlainPipeline(Word).stateful(so_far)) == [1, 3, 6, 10]


def test_a_difference_is_named_with_its_place() -> None:
    wanted = PlainPipeline(Word).run(TABLE)
    assert differs(TABLE, wanted) == ""
    assert differs(TABLE.slice(1), wanted) == "4 outputs are right, found 3"
    changed = TABLE.set_column(1, "number", pa.array([1, 2, 0, 4]))
    assert differs(changed, wanted) == "output 2 is Word(group=1, number=3), found {'group': 1, 'number': 0}"
