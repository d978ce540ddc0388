"""Run kazoo's own test suite on Keepfast, unchanged: `python -m tests.kazoo_suite.run`.

kazoo's tests start servers by the command `java`. A script of that name, first on the PATH, runs
Keepfast instead (`shim`). The tests themselves run in an environment of their own, made from
requirements.txt inside the environment of this interpreter, because they need packages, and old
versions of packages, that nothing else here does.

    --servers N   size of the ensemble (1)
    the rest      goes to pytest, for example `-k TestSSLClient`

On one server, tests that need several are left out, and counted as deselected. Those of Kerberos
run where there is a KDC (see tests/kerberos), and are skipped elsewhere.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.kerberos.kdc import KERBEROS_REQUIREMENTS, Kdc, missing

_HERE = Path(__file__).parent
_REQUIREMENTS = _HERE / "requirements.txt"
# What the tests are told that they run on: it decides which of them are skipped.
_ZOOKEEPER_VERSION = "3.9.5"
# The harness gives each server a block of ten ports.
_PORTS_A_SERVER = 10
_FIRST_PORT, _LAST_PORT = 20_000, 30_000
_TEST_TIMEOUT_SECONDS = 180
# They stop one server of several, or change who is a member: one server alone fails them, whoever
# made it.
_NEED_AN_ENSEMBLE = ("test_update_host_list", "TestReconfig", "TestReadOnlyMode")

# What kazoo's tests of Kerberos have written in them.
_REALM = "KAZOOTEST.ORG"
_KEY_TABLES = {"client": "client", "server": "zookeeper/127.0.0.1"}

_JAVA = """\
#!/bin/sh
exec {python} -m tests.kazoo_suite.shim "$@"
"""


def main(arguments: list[str]) -> int:
    """Make the environment, run the tests, print their closing line; gives pytest's exit code."""
    parser = argparse.ArgumentParser(description="kazoo's own tests on Keepfast")
    parser.add_argument("--servers", type=int, default=1, metavar="N", help="size of the ensemble")
    known, rest = parser.parse_known_args(arguments)
    if known.servers == 1 and "-k" not in rest:
        rest += ["-k", "not " + " and not ".join(_NEED_AN_ENSEMBLE)]
    python = _environment(Path(sys.prefix) / "kazoo-suite")
    with tempfile.TemporaryDirectory(prefix="kazoo-suite-") as folder, ExitStack() as stack:
        _write_java(Path(folder) / "bin")
        kerberos = _kerberos(Path(folder) / "kdc", stack)
        command = [
            *(str(python), "-m", "pytest", "--pyargs", "kazoo.tests", "-p", "no:cacheprovider"),
            *("-q", "-rfE", "--tb=short", f"--timeout={_TEST_TIMEOUT_SECONDS}", *rest),
        ]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**_variables(Path(folder) / "bin", known.servers), **kerberos},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        closing_line = ""
        for line in process.stdout or ():
            print(line, end="", flush=True)
            closing_line = line.strip() or closing_line
        code = process.wait()
    servers = "1 server" if known.servers == 1 else f"{known.servers} servers"
    print(f"kazoo's tests on Keepfast, {servers}: {closing_line.strip('= ')}")
    return code


def _environment(place: Path) -> Path:
    """The interpreter of the tests' environment, which is made anew when a pin has changed."""
    python = place / "bin" / "python"
    stamp = place / "installed-from"
    files = [_REQUIREMENTS, *([] if missing() else [KERBEROS_REQUIREMENTS])]
    wanted = "".join(file.read_text() for file in files)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print("Installing what kazoo's tests need.", flush=True)
    venv.create(place, clear=True, with_pip=True)
    install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    for file in files:
        subprocess.run([*install, "--requirement", str(file)], check=True)
    stamp.write_text(wanted)
    return python


def _kerberos(folder: Path, stack: ExitStack) -> Mapping[str, str]:
    """Run a KDC with the names that the tests expect; gives what they find it by."""
    if missing():
        print(f"kazoo's tests of Kerberos are skipped: they need {missing()}", flush=True)
        return {}
    kdc = Kdc(folder, _REALM)
    stack.callback(kdc.close)
    kdc.start()
    for name, principal in _KEY_TABLES.items():
        kdc.add(principal, "+allow_postdated").rename(folder / f"{name}.keytab")
    tickets = {"KRB5CCNAME": f"FILE:{folder / 'tickets'}"}
    return {**kdc.variables, **tickets, "KRB5_TEST_ENV": str(folder)}


def _write_java(folder: Path) -> None:
    folder.mkdir()
    script = folder / "java"
    script.write_text(_JAVA.format(python=shlex.quote(sys.executable)))
    script.chmod(0o755)


def _variables(folder: Path, servers: int) -> dict[str, str]:
    project = _HERE.parent.parent
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        # For the shim. kazoo's environment does not have the packages of this one.
        "PYTHONPATH": str(project),
        "CI": "1",
        "ZOOKEEPER_CLASSPATH": "none",
        "ZOOKEEPER_VERSION": _ZOOKEEPER_VERSION,
        "ZOOKEEPER_CLUSTER_SIZE": str(servers),
        "ZOOKEEPER_PORT_OFFSET": str(_free_ports(servers * _PORTS_A_SERVER)),
    }


def _free_ports(count: int) -> int:
    """The first of this many ports in a row that nobody listens on."""
    for first in range(_FIRST_PORT, _LAST_PORT, count):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise SystemExit("there are no free ports in a row")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
