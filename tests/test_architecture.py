"""The rules of layout and size that no linter knows, over the whole source tree.

Each rule is a function from a project's folder to a list of complaints. It is asked twice: about
this project, which must give none, and about a small project with one planted fault, which must
give one; a rule that cannot fail guards nothing.
"""

from __future__ import annotations

import ast
import re
import socket
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
MAX_MODULE = 600
MAX_FUNCTION = 60
MAX_CONSTRUCTOR_ARGUMENTS = 8

# "path" or "path::qualified.name" -> why it may be larger than the rule says.
EXCEPTIONS: dict[str, str] = {}

# Modules that import each other in a circle, by the package; to become fewer, never more.
CYCLES: dict[str, frozenset[str]] = {
    "sim": frozenset(
        (
            *(
                "simulated_client",
                "simulated_election_links",
                "host",
                "peers",
                "process",
                "traps",
                "watched_loop",
            ),
            *("simulated_world", "faults", "schedules", "disasters", "apache"),
        )
    ),
    "tree": frozenset(("fuzzy", "strict", "tree")),
}

# Names that several modules have, so that a name alone does not tell what is in one; to become
# fewer, never more.
SHARED_MODULE_NAMES = frozenset(
    (
        *(
            "chains",
            "effects",
            "election",
            "errors",
            "events",
            "frames",
            "history",
            "layout",
            "records",
        ),
        *("replies", "server", "sessions", "txns"),
    )
)
# What Python itself gives a meaning.
_CONVENTIONAL_NAMES = frozenset(("__init__", "__main__"))

CORE_PACKAGES = ("wire", "tree", "quorum", "replica")
CODE_FOLDERS = ("src", "tests", "benchmarks", "examples")
_BENCHMARK_DATA = ".bench-"
TOOL_FOLDERS = {
    *(
        ".git",
        ".venv",
        ".venv-compiled",
        ".venv-tools",
        "site",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
    ),
    *(".import_linter_cache", "__pycache__", "build", "dist"),
}

# Assembled from pieces, so that this file does not contain what it looks for.
_HOME_FOLDERS = "|".join(("wo" + "rk", "ro" + "ot", "fa" + "rm", "ho" + "me/[a-z]", "tm" + "p"))
_PLACES = re.compile(
    rf"(?<![\w.}}])/(?:{_HOME_FOLDERS})/|[A-Z]:\\Us{'ers'}\\|\b[\w-]+\.(?:internal|corp|lan)\b".encode()
)
# A shorter name could be an ordinary word.
_SHORTEST_TELLING_HOST_NAME = 6

Rule = Callable[[Path], list[str]]


def python_files(project: Path, *folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Every Python file below the folders, as its name inside the project and its syntax tree."""
    for folder in folders:
        for path in sorted((project / folder).rglob("*.py")):
            if TOOL_FOLDERS.isdisjoint(path.parts):
                yield path.relative_to(project).as_posix(), ast.parse(path.read_bytes())


def definitions(
    module: ast.Module,
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of a module with its qualified name, methods and inner functions included."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}".removeprefix(".")
                yield name, child
            yield from walk(child, name)

    for name, node in walk(module, ""):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node


def modules_are_short(project: Path) -> list[str]:
    complaints = []
    for name, _ in python_files(project, *CODE_FOLDERS):
        lines = len((project / name).read_text().splitlines())
        if lines > MAX_MODULE and name not in EXCEPTIONS:
            complaints.append(f"{name} has {lines} lines: split it by noun")
    return complaints


def functions_are_short(project: Path) -> list[str]:
    complaints = []
    for file, module in python_files(project, *CODE_FOLDERS):
        for name, function in definitions(module):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > MAX_FUNCTION and f"{file}::{name}" not in EXCEPTIONS:
                complaints.append(f"{file}::{name} has {lines} lines")
    return complaints


def constructors_take_few_arguments(project: Path) -> list[str]:
    complaints = []
    for file, module in python_files(project, *CODE_FOLDERS):
        for name, function in definitions(module):
            if function.name != "__init__":
                continue
            arguments = function.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            count = len(named) - 1  # self
            if count > MAX_CONSTRUCTOR_ARGUMENTS and f"{file}::{name}" not in EXCEPTIONS:
                complaints.append(f"{file}::{name} takes {count} arguments: make options of them")
    return complaints


def packages_say_what_lives_there(project: Path) -> list[str]:
    return [
        f"{name} has no docstring"
        for name, module in python_files(project, "src")
        if name.endswith("/__init__.py") and not ast.get_docstring(module)
    ]


def source_has_no_assert(project: Path) -> list[str]:
    return [
        f"{name}:{node.lineno} uses assert, which python -O removes: use invariant()"
        for name, module in python_files(project, "src")
        for node in ast.walk(module)
        if isinstance(node, ast.Assert)
    ]


def docstrings_speak_for_themselves(project: Path) -> list[str]:
    """A docstring that sends its reader to the module says nothing."""
    return [
        f"{name}: {node.name} sends its reader elsewhere"
        for name, module in python_files(project, "src")
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and "see the module" in (ast.get_docstring(node) or "").lower()
    ]


def packages_import_packages(project: Path) -> list[str]:
    """A module imports another package's names from the package, not from its insides."""
    complaints = []
    for name, module in python_files(project, "src"):
        own = name.removeprefix("src/keepfast/").split("/")[0]
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom):
                targets = [node.module or ""]
            elif isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            else:
                continue
            for target in targets:
                parts = target.split(".")
                if parts[0] == "keepfast" and len(parts) > 2 and parts[1] != own:
                    complaints.append(f"{name}:{node.lineno} reaches into {target}")
    return complaints


def _imports_inside(project: Path) -> dict[str, set[str]]:
    """Module -> the modules of its own package that it imports, also only for type checking."""
    modules = {
        name.removeprefix("src/").removesuffix(".py").replace("/", "."): module
        for name, module in python_files(project, "src")
        if not name.endswith("/__init__.py")
    }
    graph: dict[str, set[str]] = {}
    for name, module in modules.items():
        found: set[str] = set()
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                found.add(node.module)
                # "from package import module" is an import of the module.
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
        graph[name] = found & modules.keys() - {name}
    return graph


def modules_in_cycles(project: Path) -> set[str]:
    """The modules that are reached again by what they import."""
    graph = _imports_inside(project)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(graph[name])
        return seen

    return {name for name in graph if name in reached(name)}


def modules_import_in_one_direction(project: Path) -> list[str]:
    """What imports each other cannot be understood, tested or changed one by one."""
    return [
        f"{name} is in a circle of imports"
        for name in sorted(modules_in_cycles(project))
        if name.split(".")[-1] not in CYCLES.get(name.split(".")[1], ())
    ]


def repeated_module_names(project: Path) -> dict[str, list[str]]:
    """Name -> the modules that have it, where there are several."""
    places: dict[str, list[str]] = {}
    for name, _ in python_files(project, "src"):
        places.setdefault(Path(name).stem, []).append(name)
    return {
        name: found
        for name, found in places.items()
        if len(found) > 1 and name not in _CONVENTIONAL_NAMES
    }


def module_names_tell_their_content(project: Path) -> list[str]:
    """A reader who sees the name of a file knows what is in it without its folder."""
    return [
        f"{' and '.join(found)}: two modules of one name"
        for name, found in repeated_module_names(project).items()
        if name not in SHARED_MODULE_NAMES
    ]


def class_names_are_used_once(project: Path) -> list[str]:
    """A reader who meets a class does not have to ask which one of that name it is."""
    places: dict[str, list[str]] = {}
    for name, module in python_files(project, "src"):
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{name}:{node.lineno}")
    return [
        f"{name} is defined in {' and '.join(found)}"
        for name, found in places.items()
        if len(found) > 1
    ]


def architecture_names_what_exists(project: Path) -> list[str]:
    """Whoever follows docs/architecture.md through the code finds each file, class and method."""
    page = project / "docs" / "architecture.md"
    if not page.exists():
        return []
    files, names = [], set()
    for file, module in python_files(project, "src", "tests"):
        files.append("/" + file)
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Name):
                names.add(node.id)
    complaints = []
    for token in sorted(set(re.findall(r"`([^`\n]+)`", page.read_text()))):
        if re.fullmatch(r"[\w/]+\.py", token):
            is_there = any(file.endswith(f"/{token}") for file in files)
        elif re.fullmatch(r"(?:\w+\.)?[A-Z]\w*[a-z]\w*(?:\.\w+)?", token):
            # package.Class, Class or Class.method
            is_there = names.issuperset(re.findall(r"[A-Z]\w*|(?<=[a-z]\.)\w+$", token))
        else:
            continue
        if not is_there:
            complaints.append(f"docs/architecture.md: there is no {token}")
    return complaints


def core_packages_are_under_contract(project: Path) -> list[str]:
    """The contract on I/O cannot name packages that do not exist; here it has to, once they do."""
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    listed = {
        package
        for contract in contracts
        if contract["id"] == "core-does-no-io"
        for package in contract["source_modules"]
    }
    return [
        f"keepfast.{name} is not in the contract core-does-no-io of pyproject.toml"
        for name in CORE_PACKAGES
        if (project / "src" / "keepfast" / name).is_dir() and f"keepfast.{name}" not in listed
    ]


def nothing_names_a_machine(project: Path) -> list[str]:
    """No file, golden ones included, holds a path or a name of the machine it was written on."""
    host = socket.gethostname()
    host_name = re.compile(rf"\b{re.escape(host)}\b".encode())
    complaints = []
    for path in sorted(project.rglob("*")):
        inside = path.relative_to(project)
        if not path.is_file() or not TOOL_FOLDERS.isdisjoint(inside.parts):
            continue
        if inside.parts[0].startswith(_BENCHMARK_DATA):
            continue  # a benchmark that runs beside this, gigabytes that nobody commits
        content = path.read_bytes()
        found = _PLACES.search(content)
        if found is None and len(host) >= _SHORTEST_TELLING_HOST_NAME and host != "localhost":
            found = host_name.search(content)
        if found is not None:
            line = content.count(b"\n", 0, found.start()) + 1
            complaints.append(f"{inside.as_posix()}:{line} names a machine: {found[0]!r}")
    return complaints


def lock_pins_versions_only(project: Path) -> list[str]:
    """No index, no address, no local path: names, versions, and the hashes of their files."""
    text = (project / "requirements.lock").read_text().replace(" \\\n", "")
    pin = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+(?:\s+--hash=sha256:[0-9a-f]{64})+")
    return [
        f"requirements.lock: {line}"
        for line in text.splitlines()
        if not line.startswith("#") and not pin.fullmatch(line)
    ]


def exceptions_are_needed(project: Path) -> list[str]:
    """An exception to a rule names something that exists and says why."""
    known = {name for name, _ in python_files(project, *CODE_FOLDERS)}
    return [
        f"exception for {name}: no such file, or no reason"
        for name, reason in EXCEPTIONS.items()
        if name.split("::")[0] not in known or not reason
    ]


RULES: tuple[Rule, ...] = (
    modules_are_short,
    functions_are_short,
    constructors_take_few_arguments,
    packages_say_what_lives_there,
    source_has_no_assert,
    docstrings_speak_for_themselves,
    packages_import_packages,
    modules_import_in_one_direction,
    module_names_tell_their_content,
    class_names_are_used_once,
    architecture_names_what_exists,
    core_packages_are_under_contract,
    nothing_names_a_machine,
    lock_pins_versions_only,
    exceptions_are_needed,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_this_project_keeps_the_rule(rule: Rule) -> None:
    assert rule(PROJECT) == []


_CONTRACT = '[[tool.importlinter.contracts]]\nid = "core-does-no-io"\nsource_modules = []\n'
_MANY_ARGUMENTS = ", ".join(f"a{number}" for number in range(9))


@pytest.mark.parametrize(
    ("rule", "file", "content"),
    [
        (modules_are_short, "src/keepfast/wire/x.py", "a = 1\n" * 601),
        (functions_are_short, "tests/test_x.py", "def f():\n" + "    a = 1\n" * 60),
        (
            constructors_take_few_arguments,
            "src/keepfast/wire/x.py",
            f"class A:\n    def __init__(self, {_MANY_ARGUMENTS}): ...\n",
        ),
        (packages_say_what_lives_there, "src/keepfast/wire/__init__.py", "a = 1\n"),
        (source_has_no_assert, "src/keepfast/wire/x.py", "def f():\n    assert True\n"),
        (
            docstrings_speak_for_themselves,
            "src/keepfast/wire/x.py",
            'class A:\n    """A thing. See the module."""\n',
        ),
        (
            packages_import_packages,
            "src/keepfast/tree/x.py",
            "from keepfast.wire.jute import Reader\n",
        ),
        (class_names_are_used_once, "src/keepfast/wire/x.py", "class A: ...\nclass A: ...\n"),
        (architecture_names_what_exists, "docs/architecture.md", "see `storage/lost.py`\n"),
        (architecture_names_what_exists, "docs/architecture.md", "see `Lost.method`\n"),
        (core_packages_are_under_contract, "src/keepfast/quorum/__init__.py", ""),
        (nothing_names_a_machine, "docs/x.md", "see /" + "wo" + "rk/x\n"),
        (nothing_names_a_machine, "docs/x.md", "ask db1.int" + "ernal\n"),
        (lock_pins_versions_only, "requirements.lock", "--index-url x\n"),
        (lock_pins_versions_only, "requirements.lock", "a @ file:///x\n"),
        (lock_pins_versions_only, "requirements.lock", "a==1\n"),
    ],
)
def test_planted_fault__is_found(tmp_path: Path, rule: Rule, file: str, content: str) -> None:
    (tmp_path / "pyproject.toml").write_text(_CONTRACT)
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)

    assert len(rule(tmp_path)) == 1


def test_planted_circle__is_found_also_where_it_is_for_type_checking_alone(tmp_path: Path) -> None:
    package = tmp_path / "src" / "keepfast" / "replica"
    package.mkdir(parents=True)
    (package / "a.py").write_text("from keepfast.replica.b import B\n")
    (package / "b.py").write_text(
        "if TYPE_CHECKING:\n    from keepfast.replica import c\n\nclass B: ...\n"
    )
    (package / "c.py").write_text("def f():\n    import keepfast.replica.a\n")
    (package / "d.py").write_text("from keepfast.replica.a import B\n")

    assert modules_in_cycles(tmp_path) == {f"keepfast.replica.{name}" for name in "abc"}
    assert len(modules_import_in_one_direction(tmp_path)) == 3


def test_planted_second_module_of_a_name__is_found(tmp_path: Path) -> None:
    for package in ("replica", "server"):
        folder = tmp_path / "src" / "keepfast" / package
        folder.mkdir(parents=True)
        for name in ("__init__", "limits", package):
            (folder / f"{name}.py").write_text("")

    assert len(module_names_tell_their_content(tmp_path)) == 1


def test_listed_module_names__are_shared() -> None:
    """An exception that is needed no more goes."""
    assert SHARED_MODULE_NAMES - repeated_module_names(PROJECT).keys() == set()


def test_listed_circles__are_there() -> None:
    """An exception that is needed no more goes."""
    listed = {(package, name) for package, names in CYCLES.items() for name in names}
    found = (name.split(".") for name in modules_in_cycles(PROJECT))
    assert listed - {(parts[1], parts[-1]) for parts in found} == set()


def test_layers_of_the_contract__are_those_of_the_style_guide() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    (layers,) = (
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["id"] == "layers"
    )
    bare = [re.sub(r"[()\s]", "", layer) for layer in layers]
    # The style guide's line, with the packages that it does not name where their needs put them.
    assert bare == [
        "__main__",
        "cli|testing",
        "lab|console",
        "harness",
        "server|sim|pipeline|shell|bench",
        "driver",
        "replica|storage|apache",
        "tree|quorum|client",
        "wire",
    ]
