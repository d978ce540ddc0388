"""`keepfast watch`: the audit, running continuously; a line per finding that opens or closes."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from urllib.parse import urlsplit

from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document, to_json
from keepfast.cli.pipeline_input import explained
from keepfast.cli.stopping import stop_signals
from keepfast.cli.values import counted, parse_duration
from keepfast.pipeline import (
    CheckpointBusy,
    CheckpointUnusable,
    Finding,
    FindingChange,
    FindingSeverity,
    Look,
    Watching,
    WatchMetrics,
    WatchOptions,
    WatchRefused,
    exit_code_of,
    serve_metrics,
    text_of,
)
from keepfast.wire import format_zxid

_MIN_EVERY_S = 1.0
_STYLES = {FindingSeverity.WARNING: "warning", FindingSeverity.ERROR: "bad"}


@dataclass(frozen=True, slots=True)
class WatchCommand:
    """The command line."""

    places: tuple[str, ...]
    every: str
    is_once: bool
    checkpoint: str | None
    webhook: str | None
    metrics: str | None
    as_json: bool


def run_watch(command: WatchCommand) -> int:
    """Watch until a signal comes; returns the exit code."""
    every_s = parse_duration(command.every, "--every")
    if every_s < _MIN_EVERY_S:
        raise CommandFailed(f"--every {command.every}: at least 1s")
    if command.webhook is not None and urlsplit(command.webhook).scheme not in ("http", "https"):
        raise CommandFailed(
            f"--webhook {command.webhook}: not an address such as https://host/path"
        )
    checkpoint = command.checkpoint or _default_checkpoint(command.places)
    options = WatchOptions(command.places, checkpoint, every_s, command.webhook)
    with explained():
        try:
            with closing(Watching(options)) as watching, stop_signals() as is_over:
                if command.is_once:
                    return _look_once(watching, command, is_over)
                return _continue_work(watching, command, checkpoint, is_over)
        except WatchRefused as error:
            raise CommandFailed(f"refused: {error}", ExitCode.REFUSED) from error
        except (CheckpointBusy, CheckpointUnusable) as error:
            raise CommandFailed(str(error), ExitCode.REFUSED) from error


def _default_checkpoint(places: tuple[str, ...]) -> str:
    """A file for these places, wherever this process may keep something."""
    # systemd gives a colon between several; the first one is ours.
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    folder = given or os.path.join(home, "keepfast")
    named = "\0".join(os.path.abspath(place) for place in places)
    name = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return os.path.join(folder, f"watch-{name}.sqlite")


def _look_once(watching: Watching, command: WatchCommand, is_over: Event) -> ExitCode:
    look = watching.look(is_over)
    if look is None:
        return ExitCode.INTERRUPTED
    out = Out()
    code = ExitCode(exit_code_of(look.result))
    if command.as_json:
        document: dict[str, object] = {
            "schema": "keepfast.watch-state/1",
            "verdict": look.result.verdict.value,
            "open": [
                {"ensemble": one.ensemble, "opened": text_of(opened), "finding": one.to_json()}
                for opened, one in look.open
            ],
            "unchecked": {one.name: list(one.unchecked) for one in look.result.ensembles},
            "exit_code": int(code),
        }
        print_document(out, document)
    else:
        for opened, finding in look.open:
            out.line(_sentence(out, text_of(opened), "open", finding))
        for one in look.result.ensembles:
            head = "" if one.committed_zxid is None else f", {format_zxid(one.committed_zxid)}"
            out.line(f"{one.name}: {one.verdict.value}{head}")
            for text in one.unchecked:
                out.line(f"{one.name}: not checked: {text}")
    out.flush()
    return code


def _continue_work(
    watching: Watching, command: WatchCommand, checkpoint: str, is_over: Event
) -> ExitCode:
    out = Out()
    metrics = WatchMetrics()
    where = _serve(metrics, command.metrics)
    is_first = True
    unseen: str | None = None

    def report(look: Look) -> None:
        nonlocal is_first, unseen
        metrics.note(look, time.time())
        if is_first:
            is_first = False
            _begin(out, command, look, checkpoint, where)
        for change in look.changes:
            _print_change(out, command, change)
        if look.unseen != unseen:
            unseen = look.unseen
            text = "looking again" if unseen is None else f"{unseen}; looking until it is back"
            print(f"keepfast: {text}", file=sys.stderr)
        if look.untold is not None:
            print(f"keepfast: {look.untold}; it is tried again", file=sys.stderr)
        out.flush()

    watching.run(is_over, report)
    return ExitCode.OK


def _begin(out: Out, command: WatchCommand, look: Look, checkpoint: str, where: str) -> None:
    """What was open before, and what is watched; lines for a person, who may be a journal."""
    if command.as_json:
        return
    servers = sum(len(one.servers) for one in look.result.ensembles)
    ensembles = counted(len(look.result.ensembles), "ensemble")
    text = f"watching {counted(servers, 'server')} of {ensembles}, every {command.every}"
    out.line(out.paint(f"{text}; checkpoint {checkpoint}{where}", "dim"))
    fresh = {id(change.finding) for change in look.changes}
    for opened, finding in look.open:
        if id(finding) not in fresh and not any(c.opened == opened for c in look.changes):
            out.line(_sentence(out, text_of(opened), "open", finding))
    for one in look.result.ensembles:
        for sentence in one.unchecked:
            out.line(out.paint(f"{one.name}: not checked: {sentence}", "dim"))


def _print_change(out: Out, command: WatchCommand, change: FindingChange) -> None:
    if command.as_json:
        out.line(to_json(change.to_json()))
    elif change.closed is None:
        out.line(_sentence(out, text_of(change.opened), "opened", change.finding))
    else:
        lasted = f" (after {change.closed - change.opened:.0f} s)"
        line = _sentence(out, text_of(change.closed), "closed", change.finding)
        out.line(line + lasted)


def _sentence(out: Out, at: str, event: str, finding: Finding) -> str:
    place = f"{finding.ensemble}: {finding.check} {finding.kind}"
    if finding.server is not None:
        place += f" on server {finding.server}"
    if finding.first_zxid is not None:
        place += f", first at {format_zxid(finding.first_zxid)}"
    style = "good" if event == "closed" else _STYLES.get(finding.severity, "dim")
    return f"{at} {out.paint(event, style)} {place}: {finding.evidence}"


def _serve(metrics: WatchMetrics, address: str | None) -> str:
    if address is None:
        return ""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise CommandFailed(f"--metrics {address}: not an address such as 127.0.0.1:9141")
    host = host.strip("[]") or "127.0.0.1"
    try:
        bound = serve_metrics(metrics, host, int(port))
    except OSError as error:
        sentence = f"--metrics {address}: cannot listen there: {error.strerror or error}"
        raise CommandFailed(sentence, ExitCode.REFUSED) from error
    return f"; metrics at http://{host}:{bound}/metrics"
