"""What all commands have in common: help, exit codes, signals, colour, and no traceback ever."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keepfast import __version__
from keepfast.cli import main
from keepfast.cli import verify as verify_module
from keepfast.cli.output import ProgressBar
from keepfast.wire import StorageError
from tests.cases import load_case
from tests.cli.runs import (
    KEEPFAST,
    TIMEOUT_SECONDS,
    call,
    plain_environment,
    run,
    write_long_log,
)
from tests.compiled import is_compiled

HEALTHY = load_case("healthy-plain-3.9.5").server_dir("0")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help__lists_the_commands(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    result = call(capsys, *arguments)
    assert (result.code, result.err) == (0, "")
    for command in ("inspect", "inspect blame", "verify", "repair", "version", "Exit codes"):
        assert command in result.out


@pytest.mark.parametrize(
    "command", [("inspect",), ("inspect", "blame"), ("verify",), ("repair",), ("version",)]
)
def test_help_of_a_command(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    result = call(capsys, *command, "--help")
    assert result.code == 0
    assert f"Usage: keepfast {' '.join(command)}" in result.out


def test_help__loads_no_heavy_module() -> None:
    """What keeps it quick; milliseconds would depend on the machine."""
    script = (
        "import sys; from keepfast.cli import main; main(['--help']); "
        "heavy = {'rich', 'msgspec', 'cramjam', 'asyncio', 'keepfast.wire', 'keepfast.storage'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "version").out.startswith(f"keepfast {__version__} (")
    document = call(capsys, "version", "--json").document
    assert (document["schema"], document["keepfast"]) == ("keepfast.version/1", __version__)
    assert document["build"] == ("compiled" if is_compiled("keepfast.tree.tree") else "pure")


def test_module_and_script__are_the_same_program() -> None:
    script = Path(sys.executable).with_name("keepfast")
    done = subprocess.run([script, "version"], capture_output=True, text=True, check=True)
    assert done.stdout == run("version").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("verify",),
        ("verify", "--no-such-option", "x"),
        ("verify", "a", "b"),
        ("verify", "a", "--retain", "0"),
        ("inspect", "a", "--limit", "-1"),
        ("inspect", "a", "--limit", "x"),
        ("inspect", "blame", "/a"),
        ("inspect", "blame", "a", "b"),
        ("inspect", HEALTHY, "--at", "yesterday"),
        ("inspect", HEALTHY, "--type", "create"),
        ("inspect", HEALTHY, "--jsonl"),
        ("inspect", HEALTHY, "--path", "no-slash"),
        ("inspect", HEALTHY / "version-2" / "snapshot.0", "--at", "1.1"),
        ("inspect", HEALTHY / "version-2" / "snapshot.0", "--type", "create"),
        ("inspect", HEALTHY / "version-2" / "snapshot.0", "--jsonl"),
        ("inspect", HEALTHY / "version-2" / "log.100000001", "--type", "drop"),
        ("inspect", HEALTHY / "version-2" / "log.100000001", "--log-dir", "x"),
    ],
    ids=lambda arguments: " ".join(str(a).rpartition("/")[2] for a in arguments),
)
def test_bad_usage__one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str | Path, ...]
) -> None:
    result = call(capsys, *arguments)
    assert result.code == 2
    result.check_sentence()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("audt",), "No such command 'audt'. Did you mean 'audit'? keepfast --help"),
        (("verify",), "Missing argument 'DIR'; keepfast verify --help"),
        (("serve", "--port", "70000"), "'--port': it must be less than or equal to 65535; keepf"),
        (("completion", "tcsh"), "'SHELL': 'tcsh' is not one of 'bash', 'zsh', 'fish'; keepf"),
    ],
)
def test_bad_usage__the_sentence_reads_as_one(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in call(capsys, *arguments).err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RuntimeError("what nobody expected"), 4, "a bug in keepfast"),
        (StorageError("cannot be listed", "/data"), 2, "cannot be listed (/data)"),
        (PermissionError(13, "Permission denied", "/data"), 2, "/data: Permission denied"),
        (MemoryError(), 4, "out of memory"),
    ],
)
def test_unexpected_failure__one_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    words: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(verify_module, "recover_in_use", fail)
    result = call(capsys, "verify", HEALTHY)
    assert result.code == code
    result.check_sentence(words)


def test_ctrl_c__exit_code_130_and_silence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verify_module, "recover_in_use", interrupted)
    assert call(capsys, "verify", HEALTHY) == (130, "", "")


@pytest.mark.parametrize("command", ["version", "lab", "simulate --seeds 1", "backup list PLACE"])
def test_json__has_its_schema_and_the_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    place = tmp_path / "place"
    if "PLACE" in command:
        assert call(capsys, "backup", HEALTHY, "--to", place).code == 0
        damaged = next(place.rglob("log.*"), None) or next(place.rglob("snapshot.*"))
        damaged.write_bytes(damaged.read_bytes()[:-100])
    result = call(capsys, *command.replace("PLACE", str(place)).split(), "--json")
    assert result.code == (1 if "PLACE" in command else 0)
    assert result.document["exit_code"] == result.code
    assert result.document["schema"].startswith("keepfast.")


def test_ctrl_c_while_modules_are_loaded__exit_code_130_and_silence() -> None:
    script = """
import sys
from keepfast.cli import main

class Interrupted:
    def find_spec(self, name, *_):
        if name == "keepfast.cli.app":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
sys.exit(main(["verify", "x"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "log.100000001"
    write_long_log(path, 5000)  # more text than fits into a pipe
    return path


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*KEEPFAST, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=plain_environment(),
    )


@pytest.mark.parametrize("arguments", [("verify", HEALTHY), ("--help",), ("manual",)])
def test_no_space_for_the_output__exit_code_4_and_a_sentence(
    arguments: tuple[str | Path, ...],
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*KEEPFAST, *map(str, arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            env=plain_environment(),
            check=False,
        )
    sentence = b"keepfast: the output could not be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, sentence)


@pytest.mark.parametrize(
    ("streams", "path", "code"),
    [
        *(("2>&-", HEALTHY, 0), ("2>&-", "missing", 2), ("2>/dev/full", "missing", 2)),
        *((">&-", HEALTHY, 0), ("<&- >&- 2>&-", "missing", 2)),
    ],
)
def test_streams_that_are_closed_or_full__the_same_exit_code(
    streams: str, path: str | Path, code: int
) -> None:
    script = f'exec "$@" {streams}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *KEEPFAST, "verify", str(path)],
        capture_output=True,
        env=plain_environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, b"")


def test_closed_standard_error__no_file_gets_its_number(tmp_path: Path) -> None:
    script = (
        "import os, sys; from keepfast.cli import main; main(['version']); "
        f"print(os.open({str(tmp_path / 'log')!r}, os.O_CREAT | os.O_WRONLY) > 2)"
    )
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env=plain_environment(),
        check=False,
    )
    assert done.stdout.endswith(b"True\n")


def test_ctrl_c_in_the_middle_of_output__exit_code_130_and_silence(long_log: Path) -> None:
    with start("inspect", long_log) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)  # it is at work, and will soon wait for a reader
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) == 130
        assert process.stderr.read() == b""


@pytest.mark.parametrize("option", ["--redact", "--json", "--jsonl"])
def test_reader_goes_away__silence(long_log: Path, option: str) -> None:
    with start("inspect", long_log, option) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(TIMEOUT_SECONDS) == 141
        assert process.stderr.read() == b""


def printed_on_a_terminal(*arguments: str | Path, **environment: str) -> str:
    """What a command prints when standard output is a terminal."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*KEEPFAST, *map(str, arguments)],
        stdout=child,
        stderr=subprocess.DEVNULL,
        env=plain_environment(**environment),
    )
    os.close(child)
    parts = []
    while True:
        try:
            part = os.read(parent, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(parent)
    process.wait(TIMEOUT_SECONDS)
    return b"".join(parts).decode()


def test_colour__on_a_terminal_only_and_not_with_no_color() -> None:
    assert "\x1b[32mWHOLE" in printed_on_a_terminal("verify", HEALTHY)
    assert "\x1b" not in printed_on_a_terminal("verify", HEALTHY, NO_COLOR="1")
    assert "\x1b" not in printed_on_a_terminal("verify", HEALTHY, TERM="dumb")
    assert "\x1b" not in run("verify", HEALTHY).out


class _Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "seconds", "is_shown"), [(True, 3, True), (True, 1, False), (False, 3, False)]
)
def test_progress_bar__on_a_terminal_when_work_takes_over_two_seconds(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, seconds: int, is_shown: bool
) -> None:
    opened = []
    now = time.monotonic()
    monkeypatch.setattr(sys, "stderr", _Terminal(is_terminal))
    monkeypatch.setattr(ProgressBar, "_open", lambda self: opened.append(self))
    # Whatever the machine does meanwhile.
    monkeypatch.setattr(time, "monotonic", lambda: now)
    bar = ProgressBar("reading")
    monkeypatch.setattr(time, "monotonic", lambda: now + seconds)
    bar.on_read("/d/log.1", 100)
    assert bool(opened) == is_shown


def test_progress_bar__is_drawn_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = ProgressBar("reading", total=1000)
    monkeypatch.setattr(bar, "_is_shown", True)
    monkeypatch.setattr(bar, "_start", bar._start - 10)
    bar.on_read("/d/log.1", 100)
    assert bar._bar is not None
    (task,) = bar._bar.tasks
    assert (task.completed, task.description) == (100, "reading log.1")
    bar.close()
    assert bar._bar is None


def test_path_that_the_terminals_encoding_does_not_have__is_escaped(tmp_path: Path) -> None:
    place = tmp_path / "gr\u00fc\u00dfe"
    place.mkdir()
    write_long_log(place / "log.100000001", 1)
    result = run("inspect", place, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "gr\\xfc\\xdfe" in result.out
    assert result.err == ""


def test_file_name_that_is_not_utf_8__json_is_still_json(tmp_path: Path) -> None:
    place = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(place)
    write_long_log(Path(place) / "log.100000001", 1)
    result = run("verify", place, "--json")
    assert result.document["directory"]["logs"] == place


def test_main_without_arguments__reads_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["keepfast", "version"])
    assert main() == 0
    assert __version__ in capsys.readouterr().out
