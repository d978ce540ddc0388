"""The compiled build: some modules of the wheel as extensions, made of the same source by mypyc.

A hook of hatchling that is off unless it is asked for (`make wheel-compiled` does), so that a
build, an installation and the wheel that everybody can use need no compiler. Which modules are
compiled is said in pyproject.toml, next to the hook's own settings; docs/decisions/0059 says why
those. The sources stay in the wheel: tracebacks show them, and Python takes an extension before a
source of the same name.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from setuptools import Extension

_SOURCES = "src"
_WARNING = ": warning:"


class CompiledBuild(BuildHookInterface[Any]):
    """Compiles the modules that pyproject.toml lists, and adds them to the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the wheel is packed. Ends the build where anything is not as it should."""
        if version == "editable":
            sys.exit("An editable installation runs the sources; it is not compiled.")
        if shutil.which("cc") is None and shutil.which("gcc") is None:
            sys.exit("The compiled build needs a C compiler, and there is none (cc, gcc).")
        root = Path(self.root)
        place = root / "build" / "compiled"
        shutil.rmtree(place, ignore_errors=True)
        _call_compiler(emit_c(root, self.config["modules"], place), place)
        # Only for the interpreter and the machine that it was built for; pip takes the wheel
        # without a platform where this one does not fit.
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        library = place / "lib"
        for file in sorted(path for path in library.rglob("*") if path.is_file()):
            build_data["force_include"][str(file)] = str(file.relative_to(library))


def listed_modules(root: Path) -> list[str]:
    """The modules that pyproject.toml lists."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    modules: list[str] = hook["modules"]
    return modules


def emit_c(root: Path, modules: list[str], place: Path) -> list[Extension]:
    """Check the types of modules and write their C below `place`; gives what is to be compiled.

    SystemExit where a type is wrong, where mypyc cannot compile something, and where it warns that
    compiled code would differ (a generator expression becomes a list).
    """
    # Here, because the hook's file is read by builds that have neither.
    from mypyc.build import mypycify

    paths = [str(Path(_SOURCES, *name.split(".")).with_suffix(".py")) for name in modules]
    said = io.StringIO()
    with contextlib.chdir(root):
        try:
            with contextlib.redirect_stdout(said):
                extensions: list[Extension] = mypycify(
                    [f"--cache-dir={place / 'types'}", *paths],
                    target_dir=str(place / "c"),
                    group_name="keepfast",
                    # 3 takes gcc longer, and most of the code only calls the runtime of Python.
                    opt_level="2",
                    # Lines of the generated C mean nothing to anybody.
                    debug_level="0",
                )
        finally:
            print(said.getvalue(), end="", file=sys.stderr)
    if _WARNING in said.getvalue():
        sys.exit("mypyc warns of code that it compiles differently: that is an error here.")
    return extensions


def _call_compiler(extensions: list[Extension], place: Path) -> None:
    """Compile the C; the extensions lie below lib/ as they do in the wheel."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    command = build_ext(Distribution({"name": "keepfast", "ext_modules": extensions}))
    command.build_lib = str(place / "lib")
    command.build_temp = str(place / "objects")
    command.ensure_finalized()
    command.run()
