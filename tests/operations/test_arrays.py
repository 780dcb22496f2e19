"""Names in generated code: whatever users call their things, different things have different names."""

from __future__ import annotations

import keyword

from hypothesis import given
from hypothesis import strategies as st

from tidegate.operations.arrays import name_in_code

USERS = st.text("abn_7", min_size=1, max_size=7).filter(str.isidentifier)
NAMES = st.tuples(st.sampled_from(["row", "table", "stream_count"]), st.lists(USERS, min_size=1, max_size=3))


@given(NAMES, NAMES)
def test_different_things_have_different_names(one: tuple[str, list[str]], other: tuple[str, list[str]]) -> None:
    names = [name_in_code(what, *users) for what, users in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in names)


def test_ordinary_names_stay_as_they_are() -> None:
    assert name_in_code("table", "Account", "last_seen") == "table__Account__last_seen"
    assert name_in_code("stream", "orders", "price", 0) == "stream__orders__price__0"


def test_a_name_that_could_be_two_is_preceded_by_its_length() -> None:
    assert name_in_code("table", "a__b", "c") == "table__n4_a__b__c"
    assert name_in_code("table", "a", "b__c") == "table__a__n4_b__c"
    assert name_in_code("var", "_x") == "var__n2__x"
    assert name_in_code("var", "n2_x") == "var__n4_n2_x"
