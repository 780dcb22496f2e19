"""The fastest of several ways is found by trial, and the others are tried again now and then."""

from __future__ import annotations

from tidegate.engine.adaptation.fastest import AGAIN, Fastest

WAYS = ["walking", "riding", "flying"]


def taught(seconds: dict[str, float]) -> Fastest:
    """The state after every way was tried twice."""
    fastest = Fastest()
    for _ in range(2 * len(seconds)):
        way = fastest.choose(list(seconds))
        fastest.learn(way, 1000, seconds[way])
    return fastest


def test_the_fastest_is_taken_once_all_are_known() -> None:
    fastest = taught({"walking": 3.0, "riding": 1.0, "flying": 2.0})
    assert [fastest.choose(WAYS) for _ in range(10)] == ["riding"] * 10
    assert fastest.why == "3000000 ns an event walking, 1000000 ns an event riding, 2000000 ns an event flying"


def test_the_first_time_loads_code_and_does_not_count() -> None:
    fastest = Fastest()
    for way, seconds in (("walking", 2.0), ("riding", 90.0), ("walking", 2.0), ("riding", 1.0)):
        fastest.learn(way, 1000, seconds)
    assert fastest.choose(["walking", "riding"]) == "riding"


def test_each_of_the_slower_ones_gets_another_chance_in_turn() -> None:
    took = {"walking": 3.0, "riding": 1.0, "flying": 2.0}
    fastest, chosen = taught(took), []
    for _ in range(4 * AGAIN):
        chosen.append(fastest.choose(WAYS))
        fastest.learn(chosen[-1], 1000, took[chosen[-1]])
    assert [way for way in chosen if way != "riding"] == ["walking", "flying", "walking", "flying"]


def test_a_batch_that_cannot_take_the_fastest_takes_the_next() -> None:
    assert taught({"walking": 3.0, "riding": 1.0, "flying": 2.0}).choose(["walking", "flying"]) == "flying"


def test_a_way_that_became_slower_is_left() -> None:
    fastest = taught({"walking": 3.0, "riding": 1.0})
    for _ in range(3):
        fastest.learn("riding", 1000, 9.0)
    assert fastest.choose(["walking", "riding"]) == "walking"
