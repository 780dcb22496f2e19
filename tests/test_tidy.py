"""The rules of this repository that a machine can check, each with the reason why it is a rule.

Everything is read as text or parsed with `ast`; nothing of the package is imported except its public
face. A rule that fails names the file and the line, so it can be mended without reading this file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from .mirror import TESTED_BY

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "tidegate"

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 80

# Bottom first. A module imports from its own layer or from one below; the names are the first part
# of the module's path under `tidegate`.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("foundation",),
    ("operations", "api"),
    ("compiler", "engine"),
    ("ordering",),
    ("os_scheduling",),
    ("durability",),
    ("embedding", "reading", "spark"),
    ("workloads", "testing"),
    ("benchmarks", "commands", "cli", "__main__"),
)
LAYER_OF = {name: height for height, names in enumerate(LAYERS) for name in names}

# They meet in `operations` only: either can be replaced without touching the other.
STRANGERS = {("compiler", "engine"), ("engine", "compiler")}

# The same inside the engine: bottom first, and the names are the first part of a module's path under `tidegate.engine`.
# Those that stand together do not import each other.
ENGINE_LAYERS: tuple[tuple[str, ...], ...] = (
    ("kernels", "worker_pool", "report"),
    ("state",),
    ("intake", "made_texts"),
    ("arguments", "arrival", "batch", "loading"),
    ("arrays", "inputs", "generated", "expiry", "faults", "results"),
    ("interpreter", "planning", "adaptation"),
    ("execution",),
    ("graphs", "single"),
    ("stages", "undoing"),
    ("core",),
)
ENGINE_LAYER_OF = {name: height for height, names in enumerate(ENGINE_LAYERS) for name in names}

# One door to each outside world.
DOORS = {
    "numba": ("foundation/jit.py",),
    "llvmlite": ("foundation/",),
    "pyspark": ("spark/",),
    "py4j": ("spark/",),
    "typer": ("cli.py", "commands/"),
    "yaml": ("os_scheduling/configuration.py",),
}


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its syntax tree and what it imports."""

    path: Path

    @property
    def name(self) -> str:
        parts = self.path.relative_to(SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def place(self) -> str:
        """The path inside the package, as DOORS spells it."""
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def part(self) -> str:
        """The first part of the name under `tidegate`; empty for the package's own `__init__`."""
        return "".join(self.name.split(".")[1:2])

    @property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """(line, dotted name) of everything imported at run time, wherever the import stands."""
        typing_only = {
            id(node)
            for block in ast.walk(self.tree)
            if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
            for statement in block.body
            for node in ast.walk(statement)
        }
        found: list[tuple[int, str]] = []
        for node in ast.walk(self.tree):
            if id(node) in typing_only:
                continue
            if isinstance(node, ast.Import):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                source = self._absolute(node)
                found += [(node.lineno, f"{source}.{alias.name}") for alias in node.names]
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        root = SOURCE if self.path.is_relative_to(SOURCE) else ROOT
        parts = self.path.relative_to(root).parts[: -node.level]
        return ".".join((*parts, node.module) if node.module else parts)


MODULES = [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]


def test_imports_only_go_down() -> None:
    wrong = []
    for module in MODULES:
        if not module.part:
            continue  # the package's public face gathers from all layers that it exports
        assert module.part in LAYER_OF, f"{module.place}: name its layer in LAYERS"
        for line, imported in module.imports:
            parts = imported.split(".")
            if parts[0] != "tidegate" or len(parts) < 2:
                continue
            # A public name (`from tidegate import Engine`) is as high as the embedding layer.
            target = parts[1] if parts[1] in LAYER_OF else "embedding"
            if LAYER_OF[target] > LAYER_OF[module.part] or (module.part, target) in STRANGERS:
                wrong.append(f"{module.path}:{line}: {module.part} must not import {imported}")
    assert not wrong, "\n".join(wrong)


def test_imports_inside_the_engine_only_go_down() -> None:
    """Plans are made without knowing who runs them, kernels without knowing whose rows they are given."""
    wrong = []
    for module in MODULES:
        own = "".join(module.name.split(".")[2:3])
        if module.part != "engine" or not own:
            continue
        assert own in ENGINE_LAYER_OF, f"{module.place}: name its layer in ENGINE_LAYERS"
        wrong += [
            f"{module.path}:{line}: engine/{own} must not import {imported}"
            for line, imported in module.imports
            for target in [imported.removeprefix("tidegate.engine.").split(".")[0]]
            if imported.startswith("tidegate.engine.")
            and target != own
            and ENGINE_LAYER_OF[target] >= ENGINE_LAYER_OF[own]
        ]
    assert not wrong, "\n".join(wrong)


def test_each_outside_world_has_one_door() -> None:
    wrong = [
        f"{module.path}:{line}: {imported} may be imported only in {', '.join(DOORS[outside])}"
        for module in MODULES
        for line, imported in module.imports
        for outside in [imported.split(".", 1)[0]]
        if outside in DOORS and not module.place.startswith(DOORS[outside])
    ]
    assert not wrong, "\n".join(wrong)


def test_workloads_use_the_public_api_only() -> None:
    """They are our first users: what they cannot write, no user can. The kit for users' tests is public, too."""
    kit = next(module for module in MODULES if module.name == "tidegate.testing")
    public = {f"tidegate.testing.{name}" for name in _exported(kit.tree)}
    wrong = [
        f"{module.path}:{line}: {imported}"
        for module in MODULES
        if module.part == "workloads"
        for line, imported in module.imports
        if imported not in public
        if re.match(r"tidegate\.(?!workloads\b)[a-z_]+\.", imported)
        or re.fullmatch(rf"tidegate\.({'|'.join(set(LAYER_OF) - {'workloads'})})", imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_it_is_for() -> None:
    wrong = [f"{module.path}:1: no module docstring" for module in MODULES if not ast.get_docstring(module.tree)]
    assert not wrong, "\n".join(wrong)


def test_nothing_reads_the_environment_at_import() -> None:
    """A module that does cannot be imported in a test or a worker with other settings."""
    wrong = [
        f"{module.path}:{node.lineno}: {ast.unparse(node)}"
        for module in MODULES
        for statement in module.tree.body
        for node in _runs_at_import(statement)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}
    ]
    assert not wrong, "\n".join(wrong)


def _runs_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement that are evaluated when the module is imported."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            yield from ast.walk(part)
        return
    if isinstance(node, ast.Lambda):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _runs_at_import(child)


def test_files_and_functions_fit() -> None:
    long = [
        f"{module.path}: {lines} lines, at most {FILE_LINES_MAX}: split it"
        for module in MODULES
        for lines in [module.text.count("\n")]
        if lines > FILE_LINES_MAX
    ]
    long += [
        f"{module.path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for length in [(node.end_lineno or node.lineno) - node.lineno + 1]
        if length > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_no_module_is_dead() -> None:
    """Each module is imported by another one, by a test or by the command line's entry points."""
    used: set[str] = {"tidegate", "tidegate.cli", "tidegate.__main__"}
    readers = [*MODULES, *(Module(path) for path in sorted((ROOT / "tests").rglob("*.py")))]
    for reader in readers:
        text = reader.path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                used.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                source = reader._absolute(node) if node.level else node.module or ""
                used.add(source)
                used.update(f"{source}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # Commands name the modules that they load when asked; scripts are run with -m.
                used.update(re.findall(r"\btidegate(?:\.\w+)+", node.value))
    dead = [str(module.path) for module in MODULES if module.name not in used and not _has_parts(module)]
    assert not dead, "imported by nothing: " + ", ".join(dead)


def _has_parts(module: Module) -> bool:
    """A package's `__init__` lives as long as the modules in its folder do."""
    return module.path.name == "__init__.py" and len(list(module.path.parent.rglob("*.py"))) > 1


def test_every_test_file_mirrors_a_source_file_or_says_why_not() -> None:
    """A reader finds a module's tests by its name; tests of behaviour across modules have a docstring."""
    wrong = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        mirrored = PACKAGE / path.relative_to(ROOT / "tests").parent / path.name.removeprefix("test_")
        is_package = mirrored.with_suffix("").is_dir()
        if not mirrored.exists() and not is_package and not ast.get_docstring(ast.parse(path.read_text())):
            wrong.append(str(path))
    assert not wrong, "mirror no module and have no docstring: " + ", ".join(wrong)


def test_the_makefiles_targets_are_declared_and_explained() -> None:
    """`make help` prints what stands behind ##: a target without it cannot be found."""
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", text, re.MULTILINE))
    assert targets == set(re.findall(r"^([a-z]+):.*## \S", text, re.MULTILINE)), "no ## with what it does"
    declared = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert declared and set(declared[1].split()) == targets, ".PHONY names other targets"
    unknown = {name for path in PUBLISHED for name in re.findall(r"\bmake ([a-z]+)\b(?=[` ])", commands_in(path))}
    assert unknown <= targets, f"documents name targets that are not there: {unknown - targets}"


def commands_in(path: Path) -> str:
    """What a document or the workflow says in code: after a backtick, or at the start of a line."""
    if path.suffix not in {".md", ".yml", ".yaml"}:
        return ""
    return "\n".join(re.findall(r"(?:`|^)\s*(make [a-z]+[` ])", path.read_text(), re.MULTILINE))


def test_the_lists_of_slow_tests_name_tests_that_are_there() -> None:
    """`tests/conftest.py` starts with some files and leaves some out of `make quick`: a stale name would do nothing."""
    from .conftest import LONGEST_FIRST, NOT_QUICK, QUICK_TOO

    gone = [name for name in {*LONGEST_FIRST, *NOT_QUICK} if not (ROOT / "tests" / name).exists()]
    assert not gone, f"listed in tests/conftest.py, but not there: {gone}"
    text = "".join(path.read_text() for path in (ROOT / "tests" / "truth").glob("test_*.py"))
    assert all(f"def {name.partition('[')[0]}(" in text for name in QUICK_TOO)


def test_every_module_has_a_test_of_its_name_or_says_which_one_tests_it() -> None:
    """A module without a test is found when it is written, and not when it fails."""
    tests, wrong = ROOT / "tests", []
    for module in MODULES:
        if module.path.name in {"__init__.py", "__main__.py"}:
            continue
        own = tests / module.path.relative_to(PACKAGE).parent / f"test_{module.path.name}"
        elsewhere = [test for test, places in TESTED_BY.items() if module.place in places]
        if own.exists() and elsewhere:
            wrong.append(f"{module.path} has {own}: take it from TESTED_BY in {tests / 'mirror.py'}")
        elif not own.exists() and not elsewhere:
            wrong.append(f"{module.path}: write {own}, or name in {tests / 'mirror.py'} the test that covers it")
    assert not wrong, "\n".join(wrong)


def test_the_tests_of_modules_without_one_of_their_name_are_there() -> None:
    places = {module.place for module in MODULES}
    gone = [test for test in TESTED_BY if not (ROOT / "tests" / test).exists()]
    gone += [place for listed in TESTED_BY.values() for place in listed if place not in places]
    assert not gone, f"in tests/mirror.py but not there: {', '.join(gone)}"


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_nothing_is_there_for_tests_alone() -> None:
    """Code that no user reaches is read, kept and tested for nobody.

    A name counts as used if it stands anywhere in the package outside of its own definition: as a name, an attribute,
    or in a string that is code or a name. What is decorated is used by its decorator, what overrides a method of
    another package by that package, and what is public by users.
    """
    uses: dict[str, list[tuple[Path, int]]] = {}
    public: set[str] = set()
    for module in MODULES:
        for name, line in _names_used(module.tree):
            uses.setdefault(name, []).append((module.path, line))
        if module.path.name == "__init__.py":
            public |= set(_exported(module.tree))
    unused = [
        f"{module.path}:{node.lineno}: {owner}{node.name}"
        for module in MODULES
        for owner, node in _definitions(module.tree, public)
        if not node.name.startswith("__")
        and not any(
            path != module.path or not node.lineno <= line <= (node.end_lineno or node.lineno)
            for path, line in uses.get(node.name, [])
        )
    ]
    assert not unused, "used by nothing but tests:\n" + "\n".join(unused)


def _names_used(tree: ast.Module) -> Iterator[tuple[str, int]]:
    prose = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | Definition)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            is_names = re.fullmatch(r"[\w.:]+(, [\w.:]+)*", node.value)
            for name in re.findall(r"\w+" if is_names else r"\w+(?=\()", node.value):
                yield name, node.lineno


def _exported(tree: ast.Module) -> list[str]:
    return [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    ]


HARMLESS_DECORATORS = (
    "property",
    "staticmethod",
    "classmethod",
    "functools.",
    "contextlib.",
    "dataclass",
    "contextmanager",
)


def _definitions(tree: ast.Module, public: set[str]) -> Iterator[tuple[str, Definition]]:
    """What a module defines, with the class it is in, but for what others call: users, decorators, other packages."""
    for node in tree.body:
        if not isinstance(node, Definition) or node.name in public:
            continue
        if all(ast.unparse(decorator).startswith(HARMLESS_DECORATORS) for decorator in node.decorator_list):
            yield "", node
        if isinstance(node, ast.ClassDef) and all(ast.unparse(base) in OUR_CLASSES for base in node.bases):
            for method in node.body:
                if isinstance(method, Definition):
                    yield f"{node.name}.", method


OUR_CLASSES = {node.name for module in MODULES for node in module.tree.body if isinstance(node, ast.ClassDef)}


def test_the_public_names_are_sorted_and_complete() -> None:
    import tidegate

    assert list(tidegate.__all__) == sorted(tidegate.__all__)
    missing = [name for name in tidegate.__all__ if not hasattr(tidegate, name)]
    assert not missing, f"in __all__ but not there: {missing}"
    tree = next(module for module in MODULES if module.name == "tidegate").tree
    exported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidegate")
        for alias in node.names
    }
    private = {name for name in exported if name.startswith("_")}
    assert exported - private <= set(tidegate.__all__), "imported in __init__ but not in __all__"


PUBLISHED = [
    path
    for pattern in ("src/**/*", "tests/**/*", "docs/**/*", "examples/**/*", ".ci/*", "*")
    for path in sorted(ROOT.glob(pattern))
    if path.is_file()
    and path.suffix in {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".json", ".sh", ""}
    and path.name not in {"LICENSE", "test_tidy.py", ".git"}
    and "__pycache__" not in path.parts
]

# What belongs to one machine or to how the work was organised says nothing to a reader.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root|tmp)/|/home/\w+/"),
    "an issue tracker": re.compile(r"\b(?:issue|ticket)s? #?\d+\b|\b(?:TODO|FIXME|XXX)\b"),
    "a working session": re.compile(r"\b(?:last|next|previous|earlier) session\b|\bsession \d+\b"),
    "a package registry's address": re.compile(r"https?://(?:[\w-]+\.)*(?:pypi|pythonhosted)\.org"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_published_files_do_not_mention(what: str) -> None:
    wrong = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path in PUBLISHED
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if FORBIDDEN[what].search(line)
    ]
    assert not wrong, f"{what}:\n" + "\n".join(wrong)
