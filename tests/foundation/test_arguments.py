"""Arguments as they are shown in messages, and the numbers that count as whole."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tidegate.foundation.arguments import items, path, shown, whole
from tidegate.foundation.errors import DefinitionError


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_large_values_are_shown_by_their_type() -> None:
    assert shown(pd.DataFrame({"a": range(100)})) == "a pandas DataFrame"
    assert shown([0] * 1000).startswith("a list: [0, 0,") and len(shown([0] * 1000)) < 100
    assert shown("two") == "'two'"
    assert shown(Broken()) == "a value of type Broken"


def test_whole_numbers_are_those_of_numpy_too_but_no_bools() -> None:
    assert whole("n", np.int32(5)) == 5 and type(whole("n", np.int32(5))) is int
    for wrong in (True, 2.0, "2", None, 0):
        with pytest.raises(DefinitionError, match="n: required a whole number of at least 1, got"):
            whole("n", wrong)
    with pytest.raises(DefinitionError, match="from 0 to 3, got 4"):
        whole("n", 4, least=0, most=3)


def test_a_text_is_no_list_and_a_generator_is_one() -> None:
    assert items("n", (n for n in (1, 2)), "a list") == [1, 2]
    with pytest.raises(DefinitionError, match="n: required a list, got 'ab'"):
        items("n", "ab", "a list")


def test_bytes_are_no_path() -> None:
    with pytest.raises(DefinitionError, match="state: required a path"):
        path("state", b"x")
