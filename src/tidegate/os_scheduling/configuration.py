"""What a schedule is made of: engines to look at, and rules that say how to schedule their operators.

    drivers:
      traffic: {type: ordered, url: "http://127.0.0.1:7070"}
    rules:
      - {policy: queue-size, mechanism: nice, period: 1}
      - policy: constant
        priorities: {"traffic/toll*": 3, "*": 1}
        mechanism: shares
        group: {tolls: ["traffic/toll*"], rest: ["*"]}
        when: {metric: cpu_pressure, above: 20}

A rule that is wrong is refused before anything is looked at, with its place in the file. All rules are active at the
same time; where two set the same thing, the later one counts.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

import yaml

from tidegate.foundation.errors import DefinitionError, TidegateError
from tidegate.os_scheduling import policies
from tidegate.os_scheduling.drivers import Driver, EndpointDriver, OrderedDriver
from tidegate.os_scheduling.normalization import Normalization, Span
from tidegate.os_scheduling.observations import Observed
from tidegate.os_scheduling.policies import Policy
from tidegate.os_scheduling.translators import GROUPING, LIMITS, Mechanism

PERIOD_SECONDS = 1.0
PERIOD_SECONDS_MIN = 0.05
_DRIVERS: Mapping[str, Callable[..., Driver]] = {"ordered": OrderedDriver, "endpoint": EndpointDriver}
_POLICIES = (*policies.BY_METRIC, "random", "constant")
_RULE_KEYS = {
    *("policy", "priorities", "seed", "period", "operators", "level"),
    *("mechanism", "normalization", "range", "group", "when"),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A rule holds only while a metric is above or below a bound: of the node, or the largest of its operators."""

    metric: str
    above: float
    below: float


@dataclass(frozen=True, slots=True)
class Rule:
    """One policy on some operators, with the mechanism that expresses it."""

    name: str
    policy: Policy
    period: float
    operators: tuple[str, ...]
    logical: bool
    mechanism: Mechanism
    normalization: Normalization
    span: Span | None
    group: str | Mapping[str, tuple[str, ...]]
    when: Condition | None

    def is_for(self, operator: Observed) -> bool:
        """Whether it schedules this operator."""
        return any(fnmatchcase(operator.name, pattern) for pattern in self.operators)

    def group_of(self, operator: Observed) -> str | None:
        """The group that an operator is in; None if it is in none."""
        if self.group == "query":
            return operator.query
        if isinstance(self.group, str):
            return operator.name
        named = {operator.name, *operator.logical}
        return next((group for group, patterns in self.group.items() if _any_fits(named, patterns)), None)


def _any_fits(names: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A whole configuration, checked."""

    drivers: Mapping[str, Driver]
    rules: tuple[Rule, ...]


def read_configuration(file: Path) -> Configuration:
    """The configuration in a YAML file. Python names in it are imported from its folder, too."""
    try:
        found = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise DefinitionError(f"{file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file}: is not YAML: {error}") from error
    folder = str(file.absolute().parent)
    sys.path.insert(0, folder)
    try:
        return _Reader(str(file)).configuration(found)
    finally:
        sys.path.remove(folder)


class _Reader:
    """Reads parts of a file, and knows what to call them when they are wrong."""

    def __init__(self, file: str) -> None:
        self._file = file

    def wrong(self, place: str, required: str, got: object) -> DefinitionError:
        return DefinitionError(f"{self._file}: {place}: required {required}, got {got!r}")

    def configuration(self, found: Any) -> Configuration:
        top = self.mapping("the file", found, {"drivers", "rules"})
        drivers = self.mapping("drivers", top.get("drivers"))
        rules = top.get("rules")
        if not drivers:
            raise self.wrong("drivers", "at least one engine to look at, as NAME: {type: ordered, url: ...}", drivers)
        if not isinstance(rules, list) or not rules:
            raise self.wrong("rules", "a list with at least one rule, such as {policy: queue-size}", rules)
        return Configuration(
            {str(name): self.driver(f"drivers.{name}", name, entry) for name, entry in drivers.items()},
            tuple(self.rule(f"rules[{index}]", entry) for index, entry in enumerate(rules)),
        )

    def mapping(self, place: str, found: Any, keys: set[str] | None = None) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self.wrong(place, "a mapping", found)
        for key in found:
            if keys is not None and key not in keys:
                raise self.wrong(place, f"only {', '.join(sorted(keys))}", key)
        return found

    def driver(self, place: str, name: object, found: Any) -> Driver:
        if not isinstance(name, str) or not name or "/" in name:
            raise self.wrong(place, "a name without a slash", name)
        options = dict(self.mapping(place, found))
        kind = options.pop("type", "endpoint")
        make = _DRIVERS.get(kind) if isinstance(kind, str) else None
        if make is None:
            make = self.imported(f"{place}.type", kind, tuple(_DRIVERS))
        try:
            return make(**options)
        except TidegateError as error:
            raise DefinitionError(f"{self._file}: {place}.{error}") from error
        except Exception as error:
            raise DefinitionError(f"{self._file}: {place}: {kind} refused its settings: {error}") from error

    def rule(self, place: str, found: Any) -> Rule:
        rule = self.mapping(place, found, _RULE_KEYS)
        name = rule.get("policy")
        mechanism = self.one_of(f"{place}.mechanism", rule.get("mechanism", "nice"), get_args(Mechanism))
        is_rate = name == "highest-rate"
        usual = "ratio" if name == "constant" else "logarithmic" if is_rate else "linear"
        how = self.one_of(f"{place}.normalization", rule.get("normalization", usual), get_args(Normalization))
        usual_level = "logical" if name == "constant" else "physical"
        level = self.one_of(f"{place}.level", rule.get("level", usual_level), ("physical", "logical"))
        return Rule(
            name=f"{place} ({name})",
            policy=self.policy(place, name, rule),
            period=self.number(f"{place}.period", rule.get("period", PERIOD_SECONDS), PERIOD_SECONDS_MIN, 86_400),
            operators=self.patterns(f"{place}.operators", rule.get("operators", ["*"])),
            logical=level == "logical",
            mechanism=mechanism,
            normalization=how,
            span=self.span(f"{place}.range", rule.get("range"), mechanism),
            group=self.group(f"{place}.group", rule.get("group"), mechanism),
            when=self.condition(f"{place}.when", rule.get("when")),
        )

    def policy(self, place: str, name: Any, rule: Mapping[str, Any]) -> Policy:
        for key, owner in (("priorities", "constant"), ("seed", "random")):
            if key in rule and name != owner:
                raise self.wrong(f"{place}.{key}", f"nothing: only the policy {owner} has it", rule[key])
        if name == "constant":
            given = self.mapping(f"{place}.priorities", rule.get("priorities"))
            places = {pattern: f"{place}.priorities[{pattern!r}]" for pattern in given}
            return policies.constant({str(each): self.number(places[each], value) for each, value in given.items()})
        if name == "random":
            return policies.random_order(int(self.number(f"{place}.seed", rule.get("seed", 0))))
        if isinstance(name, str) and name in policies.BY_METRIC:
            return policies.BY_METRIC[name]
        function: Policy = self.imported(f"{place}.policy", name, _POLICIES)
        return function

    def imported(self, place: str, name: Any, ours: tuple[str, ...]) -> Callable[..., Any]:
        """A function or class of the user, by `module:name`."""
        module, colon, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
        if not (module and colon and attribute):
            raise self.wrong(place, f"one of {', '.join(ours)}, or a Python function as module:name", name)
        try:
            found = getattr(importlib.import_module(module), attribute)
        except Exception as error:
            raise DefinitionError(
                f"{self._file}: {place}: {name} cannot be imported: {type(error).__name__}: {error}. Modules are "
                "looked for in the folder of this file and where Python finds its own"
            ) from error
        if not callable(found):
            raise self.wrong(place, "something that can be called", found)
        called: Callable[..., Any] = found
        return called

    def one_of(self, place: str, found: Any, allowed: tuple[str, ...]) -> Any:
        if found not in allowed:
            raise self.wrong(place, f"one of {', '.join(allowed)}", found)
        return found

    def number(self, place: str, found: Any, low: float = -math.inf, high: float = math.inf) -> float:
        is_number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
        if not is_number or not low <= found <= high:
            bounds = f" from {low:g} to {high:g}" if math.isfinite(low) else ""
            raise self.wrong(place, f"a number{bounds}", found)
        return float(found)

    def patterns(self, place: str, found: Any) -> tuple[str, ...]:
        several = [found] if isinstance(found, str) else found
        if not isinstance(several, list) or not several or not all(isinstance(each, str) for each in several):
            raise self.wrong(place, "patterns of names DRIVER/OPERATOR, such as [traffic/*]", found)
        return tuple(several)

    def span(self, place: str, found: Any, mechanism: Mechanism) -> Span | None:
        if found is None:
            return None
        low, high = LIMITS[mechanism]
        if not isinstance(found, list) or len(found) != 2:
            raise self.wrong(place, f"the lowest and the highest value, such as [{low:g}, {high:g}]", found)
        first, last = (self.number(place, each, low, high) for each in found)
        if first >= last:
            raise self.wrong(place, "the lower value first", found)
        return first, last

    def group(self, place: str, found: Any, mechanism: Mechanism) -> str | Mapping[str, tuple[str, ...]]:
        if found is not None and mechanism not in GROUPING:
            raise self.wrong(place, f"nothing: only {' and '.join(GROUPING)} are for groups", found)
        if found is None or found in ("operator", "query"):
            return found or "operator"
        groups = self.mapping(place, found) if isinstance(found, dict) else {}
        if not groups:
            raise self.wrong(place, "operator, query, or a mapping from names to patterns of operators", found)
        return {str(name): self.patterns(f"{place}.{name}", each) for name, each in groups.items()}

    def condition(self, place: str, found: Any) -> Condition | None:
        if found is None:
            return None
        given = self.mapping(place, found, {"metric", "above", "below"})
        if not isinstance(given.get("metric"), str) or not given.keys() & {"above", "below"}:
            raise self.wrong(place, "a metric with above or below, such as {metric: cpu_pressure, above: 20}", found)
        above, below = (
            None if given.get(side) is None else self.number(f"{place}.{side}", given[side])
            for side in ("above", "below")
        )
        return Condition(given["metric"], -math.inf if above is None else above, math.inf if below is None else below)
