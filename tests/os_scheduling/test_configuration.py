from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.foundation.errors import DefinitionError
from tidegate.os_scheduling.configuration import Configuration, read_configuration
from tidegate.os_scheduling.drivers import Operator
from tidegate.os_scheduling.policies import queue_size

from .engines import seen

DRIVER = "drivers: {x: {type: endpoint, url: 'http://127.0.0.1:7070'}}\n"


def read(folder: Path, text: str) -> Configuration:
    file = folder / "schedule.yaml"
    file.write_text(text)
    return read_configuration(file)


def rule(folder: Path, text: str) -> Any:
    return read(folder, f"{DRIVER}rules:\n  - {text}").rules[0]


def test_a_rule_needs_only_its_policy(tmp_path: Path) -> None:
    found = rule(tmp_path, "{policy: queue-size}")
    assert (found.policy, found.period, found.mechanism, found.normalization) == (queue_size, 1.0, "nice", "linear")
    assert (found.span, found.when, found.logical) == (None, None, False)


def test_defaults_follow_the_policy(tmp_path: Path) -> None:
    assert rule(tmp_path, "{policy: highest-rate}").normalization == "logarithmic"
    constant = rule(tmp_path, "{policy: constant, priorities: {'*': 1}}")
    assert constant.normalization == "ratio" and constant.logical


def test_a_rule_is_for_the_operators_that_its_patterns_name(tmp_path: Path) -> None:
    found = rule(tmp_path, "{policy: fcfs, operators: [x/toll*, 'y/*']}")
    assert [found.is_for(seen(name)) for name in ("x/toll1", "y/a", "x/parse")] == [True, True, False]


def test_groups_are_made_by_operator_by_query_or_by_patterns(tmp_path: Path) -> None:
    operator = seen("x/a", query="roads", logical=("x/parse",))
    assert rule(tmp_path, "{policy: fcfs, mechanism: shares}").group_of(operator) == "x/a"
    assert rule(tmp_path, "{policy: fcfs, mechanism: quota, group: query}").group_of(operator) == "roads"
    named = rule(tmp_path, "{policy: fcfs, mechanism: shares, group: {p: ['*/parse'], q: ['x/b']}}")
    assert [named.group_of(each) for each in (operator, seen("x/b"), seen("x/c"))] == ["p", "q", None]


def test_policies_and_drivers_of_users_are_imported_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "own_schedule.py").write_text(
        "from tidegate.os_scheduling import Operator\n"
        "def policy(view): return {name: 1.0 for name in view.operators}\n"
        "class Driver:\n"
        "    def __init__(self, size): self.size = size\n"
        "    def operators(self): return [Operator('a', 1, (1,), metrics={'queue_size': self.size})]\n"
    )
    text = "drivers: {x: {type: 'own_schedule:Driver', size: 3}}\nrules: [{policy: 'own_schedule:policy'}]"
    found = read(tmp_path, text)
    assert found.drivers["x"].operators() == [Operator("a", 1, (1,), metrics={"queue_size": 3})]
    assert found.rules[0].name == "rules[0] (own_schedule:policy)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file: required a mapping, got None"),
        ("drivers: {", "is not YAML"),
        ("\xff\xfe", "is not YAML|required a mapping"),
        ("drivers: {}\nrules: [{policy: fcfs}]", "drivers: required at least one engine"),
        (f"{DRIVER}rules: []", r"rules: required a list with at least one rule.*got \[\]"),
        (f"{DRIVER}rules: [{{policy: fcfs}}]\nrule: 1", "required only drivers, rules, got 'rule'"),
        ("drivers: {a/b: {url: 'http://127.0.0.1'}}\nrules: [1]", "drivers.a/b: required a name without a slash"),
        (
            "drivers: {x: {type: storm}}\nrules: [1]",
            "drivers.x.type: required one of ordered, endpoint, or a Python function",
        ),
        ("drivers: {x: {url: 'http://10.1.1.1'}}\nrules: [1]", "drivers.x.url: required the address .* on this node"),
        ("drivers: {x: {port: 1}}\nrules: [1]", "drivers.x: endpoint refused its settings: .*port"),
        ("drivers: {x: 7}\nrules: [1]", "drivers.x: required a mapping, got 7"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"schedule.yaml: .*{message}"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7", r"rules\[0\]: required a mapping"),
        ("{}", r"rules\[0\].policy: required one of queue-size, .*module:name, got None"),
        ("{policy: [1]}", "policy: required one of"),
        ("{policy: 'no_such_module:f'}", "no_such_module:f cannot be imported: ModuleNotFoundError"),
        ("{policy: 'math:pi'}", "required something that can be called"),
        ("{policy: fcfs, periods: 1}", "required only .*period.*got 'periods'"),
        ("{policy: fcfs, period: 0}", "period: required a number from 0.05 to 86400, got 0"),
        ("{policy: fcfs, period: .nan}", "period: required a number"),
        ("{policy: fcfs, period: true}", "period: required a number"),
        ("{policy: fcfs, seed: 1}", "seed: required nothing: only the policy random has it"),
        ("{policy: constant}", "priorities: required a mapping, got None"),
        ("{policy: constant, priorities: {a: high}}", r"priorities\['a'\]: required a number, got 'high'"),
        ("{policy: fcfs, mechanism: cpu}", "mechanism: required one of nice, shares, quota, realtime, got 'cpu'"),
        ("{policy: fcfs, normalization: log}", "normalization: required one of linear"),
        ("{policy: fcfs, level: up}", "level: required one of physical, logical"),
        ("{policy: fcfs, operators: []}", "operators: required patterns"),
        ("{policy: fcfs, range: [-30, 19]}", "range: required a number from -20 to 19, got -30"),
        ("{policy: fcfs, range: [5, 5]}", "range: required the lower value first"),
        ("{policy: fcfs, range: 5}", "range: required the lowest and the highest value"),
        ("{policy: fcfs, group: query}", "group: required nothing: only shares and quota are for groups"),
        ("{policy: fcfs, mechanism: shares, group: all}", "group: required operator, query, or a mapping"),
        ("{policy: fcfs, when: {metric: cpu_pressure}}", "when: required a metric with above or below"),
        ("{policy: fcfs, when: {metric: a, above: x}}", "when.above: required a number, got 'x'"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"schedule.yaml: .*{message}"):
        rule(tmp_path, text)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"none.yaml: cannot be read: No such file"):
        read_configuration(tmp_path / "none.yaml")
