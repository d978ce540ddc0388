"""Runs of ZooKeeper's own shell and of ours, brought into a form in which they can be compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from tests.apache import java_command

_TIMEOUT_S = 120
_OURS = "import sys; from keepfast.shell import run_shell; sys.exit(run_shell(sys.argv[1:]))"
_BANNER = re.compile(r"Connecting to .*|Welcome to ZooKeeper!|JLine support is disabled")
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3} .*")
_TIME = re.compile(r"(?<=[cm]time = )[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d .* \d{4}")
_EPOCH = re.compile(r".*1970")
_OWNER = re.compile(r"(?<=ephemeralOwner = )0x[1-9a-f][0-9a-f]*")
# Commons CLI's exceptions carry their class names into the text.
_JAVA_CLASS = re.compile(r"org\.apache\.commons\.cli\.\w+Exception: ")
_EVENT = "WatchedEvent "
_EVENT_HEAD = "WATCHER::"
# An empty line stands before each of the two.
_BLANKS_OF_AN_EVENT = 2


class Transcript(NamedTuple):
    """What was printed, standard output and error together, and the events that came."""

    lines: list[str]
    blank_lines: int
    events: list[str]
    exit_code: int


def run_apache(server: str, *command: str, script: str | None = None) -> Transcript:
    """ZooKeeper's shell: one command, or the lines of a script."""
    arguments = ["-server", server, "-waitforconnection", *command]
    done = subprocess.run(
        java_command("org.apache.zookeeper.ZooKeeperMain", arguments),
        input=script or "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return _normalised(done.stdout, done.returncode)


def run_ours(server: str, *command: str, script: str | None = None) -> Transcript:
    """Our shell, the same way."""
    done = subprocess.run(
        ours(server, *command),
        input=script or "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return _normalised(done.stdout, done.returncode)


def ours(*arguments: str) -> list[str]:
    """The command line of our shell."""
    return [sys.executable, "-c", _OURS, *arguments]


def capture(
    *arguments: str, script: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Our shell with its two streams apart, as they are."""
    return subprocess.run(
        ours(*arguments),
        input=script,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def _normalised(text: str, exit_code: int) -> Transcript:
    """Without what depends on the moment, on the language, or on the speed of threads.

    Events come from another thread, so that their place among the other lines is chance in
    ZooKeeper's shell, and lines of other commands come in between theirs; their own order is not.
    """
    lines = text.splitlines()
    events = [line for line in lines if line.startswith(_EVENT)]
    rest = [
        _normalised_line(line)
        for line in lines
        if not line.startswith((_EVENT, _EVENT_HEAD))
        and not _BANNER.fullmatch(line)
        and not _LOG_LINE.fullmatch(line)
    ]
    return Transcript(
        lines=[line for line in rest if line],
        blank_lines=rest.count("") - _BLANKS_OF_AN_EVENT * len(events),
        # Those of the session itself are printed by an interactive shell only.
        events=[event for event in events if "type:None" not in event],
        exit_code=exit_code,
    )


def _normalised_line(line: str) -> str:
    line = _JAVA_CLASS.sub("", line)
    line = _TIME.sub(lambda match: match[0] if _EPOCH.fullmatch(match[0]) else "TIME", line)
    return _OWNER.sub("SESSION", line)
