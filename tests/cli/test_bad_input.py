"""Bad input gives one sentence and exit code 2, and costs neither memory nor time."""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from keepfast.cli.help_layout import COMMAND_GROUPS
from tests.cli.runs import TIMEOUT_SECONDS, Result, call

LOG_START = b"ZKLG" + struct.pack(">iq", 2, 0)
SNAPSHOT_START = b"ZKSN" + struct.pack(">iq", 2, -1)
HUGE_LENGTH = 0x7FFFFFFF
HUGE_FILE_BYTES = 5 << 30
MEMORY_LIMIT_BYTES = 1 << 30


COMMANDS = [name for names in COMMAND_GROUPS.values() for name in names if name != "shell"]


def sparse(path: Path, start: bytes) -> None:
    """A file of five gigabytes that takes no space."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(HUGE_FILE_BYTES)


# Name of the file -> what is in it.
FILES: dict[str, bytes] = {
    "log.1": b"",
    "snapshot.1": b"",
    "notes.txt": b"not of a server",
    "log.2": b"a foreign file under the name of a log",
    "snapshot.2": b"a foreign file under the name of a snapshot",
    "snapshot.3.gz": b"\x1f\x8b\x08 no gzip stream",
    "snapshot.3.snappy": b"\x82SNAPPY\0\0\0\0\1",
    "binary": random.Random(1).randbytes(100_000),
    "log.4": LOG_START[:9],
    "log.5": LOG_START + struct.pack(">qi", 1, HUGE_LENGTH) + b"x" * 99,
    "snapshot.5": SNAPSHOT_START + struct.pack(">iii", 0, 0, HUGE_LENGTH),
    "snapshot.6": SNAPSHOT_START + struct.pack(">i", HUGE_LENGTH),
}
HUGE_FILES: dict[str, bytes] = {
    "log.7": LOG_START + struct.pack(">qi", 1, HUGE_LENGTH) + b"x" * 99,
    # The root with a gigabyte of data.
    "snapshot.7": SNAPSHOT_START + struct.pack(">iiii", 0, 0, 0, 0x3FFFFFFF),
    "snapshot.8": SNAPSHOT_START + struct.pack(">i", HUGE_LENGTH),
}


@pytest.mark.parametrize("name", FILES)
def test_inspect_of_a_file_that_is_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    for options in ((), ("--json",)):
        result = call(capsys, "inspect", path, *options)
        assert result.code == 2, result
        result.check_sentence(str(path))


def run_limited(*arguments: str | Path) -> Result:
    """Run a command that may not have more than a gigabyte of memory."""
    script = (
        "import resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_LIMIT_BYTES}, {MEMORY_LIMIT_BYTES})); "
        "from keepfast.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("name", HUGE_FILES)
def test_length_field_of_gigabytes_in_a_file_that_has_them(tmp_path: Path, name: str) -> None:
    sparse(tmp_path / name, HUGE_FILES[name])
    result = run_limited("inspect", tmp_path / name)
    assert result.code == 2, result
    result.check_sentence(name)


def test_directory_with_a_log_of_five_gigabytes__verified_in_bounded_memory(tmp_path: Path) -> None:
    sparse(tmp_path / "log.7", HUGE_FILES["log.7"])
    result = run_limited("verify", tmp_path)
    assert result.code == 1, result
    assert "[log-damaged]" in result.out
    assert result.err == ""


def commands(path: Path) -> list[tuple[str | Path, ...]]:
    return [
        ("inspect", path),
        ("inspect", "blame", "/a", path),
        ("verify", path),
        ("verify", path, "--json"),
        ("repair", path),
        ("repair", path, "--apply"),
    ]


def test_path_that_does_not_exist(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in commands(tmp_path / "missing"):
        result = call(capsys, *command)
        assert result.code == 2
        result.check_sentence("missing", "does not exist")


def test_directory_without_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of a server")
    for command in commands(tmp_path):
        result = call(capsys, *command)
        assert result.code == 2
        result.check_sentence("holds no data directory")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_name_with_a_line_break__one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for command in commands(tmp_path / "a\nb"):
        result = call(capsys, *command)
        assert result.code == 2
        result.check_sentence(r"a\nb does not exist")


@pytest.mark.parametrize("arguments", [("verify", ""), ("state", ""), ("audit", "x", "--out=")])
def test_variable_that_is_not_set__not_the_directory_one_is_in(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    result = call(capsys, *arguments)
    assert result.code == 2
    result.check_sentence("an argument is empty")


HUGE = "99999999999999999999"


@pytest.mark.parametrize("command", [*COMMANDS])
def test_number_beyond_every_use__refused_by_every_option_that_takes_one(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    shown = call(capsys, *command.split(), "--help").out
    # What each needs besides; none of it is looked at before the numbers are.
    needed = {"simulate": ("--seeds", "1"), "history": ("--out", "x"), "backup": ("--to", "x")}
    words = {"simulate": [], "who": ["/a", "x"], "inspect blame": ["/a", "x"]}.get(command, ["x"])
    for option in re.findall(r"^ +(--[a-z-]+|-n) +(?:N|P|SECONDS)\b", shown, re.MULTILINE):
        result = call(capsys, *command.split(), *words, *needed.get(command, ()), option, HUGE)
        assert result.code == 2, (option, result)
        result.check_sentence(f"'{option}'")


@pytest.mark.parametrize("host", ["a\nb:1", "a b:1", "a\x1b[31m:1"])
def test_name_that_no_host_has__refused(capsys: pytest.CaptureFixture[str], host: str) -> None:
    result = call(capsys, "status", host)
    assert result.code == 2
    result.check_sentence("is not host:port")


def test_console_on_directories_that_are_not_there__says_so_before_it_serves(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for name, reason in (("missing", "there is no such directory"), ("file", "is a file")):
        command = ("console", "127.0.0.1:1", "--listen", "nowhere", "--data", tmp_path / name)
        result = call(capsys, *command)
        assert result.code == 2
        result.check_sentence(name, reason)


def test_file_in_place_of_a_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "log.1"
    path.write_bytes(LOG_START)
    for command in commands(path)[1:]:
        result = call(capsys, *command)
        assert result.code == 2
        result.check_sentence("is a file")


def test_second_directory_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "version-2").mkdir()
    result = call(capsys, "verify", tmp_path, "--log-dir", tmp_path / "missing")
    assert result.code == 2
    result.check_sentence("missing")


def test_pipe_or_device_in_place_of_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "log.1")
    for path in (tmp_path / "log.1", Path(os.devnull)):
        result = call(capsys, "inspect", path)
        assert result.code == 2
        result.check_sentence("not a regular file")


def run_as_nobody(*arguments: str | Path) -> Result:
    """Run a command as a user to whom permissions apply.

    The superuser reads everything, so who is the superuser becomes somebody else first; the
    modules are loaded before that, because that user may not be able to read them either.
    """
    script = (
        "import contextlib, io, os, sys\n"
        "from keepfast.cli import blame, directory_view, inspect, main, repair_command, verify\n"
        "from keepfast.cli import fast_serve, serve_command\n"
        "import keepfast.server.serve, keepfast.server.ensemble_options\n"
        "with contextlib.suppress(ImportError):\n"
        "    import uvloop\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    main(['version', '--json'])\n"
        "if os.geteuid() == 0:\n"
        "    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user can reach: pytest's own are for their owner alone."""
    with TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o711)
        yield place


def test_no_permission_to_list_a_directory(reachable: Path) -> None:
    place = reachable / "data"
    (place / "version-2").mkdir(parents=True)
    (place / "version-2").chmod(0)
    try:
        for command in commands(place):
            result = run_as_nobody(*command)
            assert result.code == 2, result
            result.check_sentence("no permission")
    finally:
        (place / "version-2").chmod(0o755)


def test_no_permission_to_enter_a_folder_above(reachable: Path) -> None:
    place = reachable / "closed"
    (place / "data" / "version-2").mkdir(parents=True)
    place.chmod(0)
    try:
        for command in commands(place / "data")[:3]:
            result = run_as_nobody(*command)
            assert result.code == 2, result
            result.check_sentence("no permission")
    finally:
        place.chmod(0o755)


def test_no_permission_to_read_a_file(reachable: Path) -> None:
    path = reachable / "log.1"
    path.write_bytes(LOG_START)
    path.chmod(0)
    try:
        result = run_as_nobody("inspect", path)
        assert result.code == 2
        result.check_sentence("log.1")
    finally:
        path.chmod(0o644)


@pytest.mark.parametrize("kind", ["standalone", "member"])
def test_server_on_the_data_of_another_user__names_the_place(reachable: Path, kind: str) -> None:
    place = reachable / "data"
    # A member reads the first file and removes the second one before anything else.
    place.mkdir(mode=0o711 if kind == "member" else 0o700)
    (place / "myid").write_text("1\n")
    (place / "initialize").touch()
    members = "".join(f"server.{id}=127.0.0.1:{id}:{id + 3}\n" for id in (1, 2, 3))
    timing = "initLimit=5\nsyncLimit=5\nclientPort=0\nadmin.enableServer=false\n"
    config = reachable / "zoo.cfg"
    config.write_text(f"dataDir={place}\n{timing}{members if kind == 'member' else ''}")
    result = run_as_nobody("serve", "--log-level", "error", config)
    assert result.code == 4, result
    result.check_sentence("permission denied; run as the user who owns the data", str(place))
