"""The commands and their arguments.

Each function only parses: it gives back the work as a function without arguments, which `run` calls
under the one handler that turns every failure into a sentence and an exit code.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from keepfast.cli.output import CommandFailed, ExitCode, Out

Work = Callable[[], int]

app = typer.Typer(
    name="keepfast",
    help="A coordination service compatible with ZooKeeper, and tools for its data directories.",
    epilog="Exit codes: 0 all is well, 1 something is wrong, 2 bad usage or unreadable input, "
    "3 not everything could be checked, 4 refused.",
    add_completion=False,
    # Plain help: with rich's boxes it takes twice as long to appear.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
LogDir = Annotated[
    str | None,
    typer.Option("--log-dir", metavar="DIR", help="The dataLogDir, if the logs lie apart."),
]
Redact = Annotated[
    bool, typer.Option("--redact", help="Show data as its length and the start of its SHA-256.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=0, metavar="N", help="Show at most N entries.")
]
Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="A dataDir, or the version-2 inside it.")
]


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
    znode: Annotated[
        str | None, typer.Option("--path", metavar="/a", help="Only this znode and those below it.")
    ] = None,
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
        bool, typer.Option("--jsonl", help="Log: one JSON value a line, a record each.")
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
    znode: Annotated[str, typer.Argument(metavar="/path", help="The path of a znode.")],
    path: Directory,
    children: Annotated[
        bool, typer.Option("--children", help="Also show which children came and went.")
    ] = False,
    redact: Redact = False,
    limit: Limit = None,
    log_dir: LogDir = None,
    as_json: AsJson = False,
) -> Work:
    """Show which transactions changed a znode.

    With their time and session, in the order of their zxids. Changes nothing.
    """
    from keepfast.cli.inspect import inspect_blame

    return lambda: inspect_blame(path, log_dir, znode, children, limit, redact, as_json)


@app.command("verify")
def verify_command(
    path: Directory,
    log_dir: LogDir = None,
    retain: Annotated[
        int, typer.Option("--retain", min=1, metavar="N", help="Say what a purge to N deletes.")
    ] = 3,
    as_json: AsJson = False,
) -> Work:
    """Tell whether a recovery path is proven.

    Reads everything, and says to which zxid and digest, or what is wrong, where, and what to do
    next. Changes nothing.
    """

    def work() -> int:
        from keepfast.cli.places import open_directory, reading
        from keepfast.cli.recovery_view import Target
        from keepfast.cli.verify import verify

        with reading("verifying") as (disk, out):
            directory = open_directory(disk, path, log_dir)
            return verify(disk, directory, Target(path, log_dir), retain, as_json, out)

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

    Cuts a damaged history behind its last proven record. A dry run unless --apply is given. Nothing
    is deleted, and no checksum is made good.
    """

    def work() -> int:
        from keepfast.cli.places import open_directory, reading
        from keepfast.cli.recovery_view import Target
        from keepfast.cli.repair import repair
        from keepfast.storage import RealDisk

        with reading("looking for what is proven") as (view, out):
            directory = open_directory(view, path, log_dir)
            disk = RealDisk() if apply else None
            return repair(view, disk, directory, Target(path, log_dir), as_json, out)

    return work


@app.command("serve")
def serve_command(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[zoo.cfg]", help="Apache's configuration file, as it is."),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", metavar="DIR", help="Where the data lies.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The client port.")
    ] = None,
    definitions: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="KEY=VALUE", help="A Java system property: -Dzookeeper.x=y."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Show the configuration that holds, and end.")
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
) -> Work:
    """Run a server in the foreground.

    Without a file: standalone, 127.0.0.1:2181, data in ./keepfast-data. SIGTERM or Ctrl-C stops it.
    """
    from keepfast.cli.serve import ServeArguments, serve

    arguments = ServeArguments(
        path, data_dir, port, tuple(definitions or ()), check, log_format, log_level, audit_log
    )
    return lambda: serve(arguments)


@app.command(
    "shell",
    # Every word behind it is the shell's, which spells its options as ZooKeeper's shell does.
    context_settings={
        "allow_extra_args": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
        "ignore_unknown_options": True,
    },
)
def shell_command(context: typer.Context) -> Work:
    """Talk to a running server: ls, get, set, create, ..."""
    from keepfast.shell import run_shell

    return lambda: run_shell(context.args)


@app.command("version")
def version_command(as_json: AsJson = False) -> Work:
    """Show the version of Keepfast and of Python."""

    def work() -> int:
        import platform

        from keepfast import __version__
        from keepfast.cli.output import print_document

        python = f"{platform.python_implementation()} {platform.python_version()}"
        out = Out()
        if as_json:
            print_document(
                out,
                {
                    "schema": "keepfast.version/1",
                    "keepfast": __version__,
                    "python": python,
                    "platform": f"{platform.system()} {platform.machine()}",
                },
            )
        else:
            out.line(f"keepfast {__version__} ({python})")
        out.flush()
        return ExitCode.OK

    return work


def run(arguments: list[str]) -> int:
    """Parse and run one command; gives its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A path that the terminal's encoding does not have must not end the answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(_joined(arguments))
    except BrokenPipeError:
        # The reader has what it wanted. Without this, Python complains at exit about the bytes
        # that are still in the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _joined(arguments: list[str]) -> list[str]:
    """`inspect blame` is a command of its own: a file of that name is `./blame`."""
    if arguments[:2] == ["inspect", "blame"]:
        return ["inspect blame", *arguments[2:]]
    return arguments or ["--help"]


def _run(arguments: list[str]) -> int:
    try:
        work = app(arguments, prog_name="keepfast", standalone_mode=False)
        return int(work()) if callable(work) else int(work or 0)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = "keepfast" if context is None else context.command_path
        message = error.format_message().rstrip(".")
        return _complain(f"{message}; {command} --help shows what is possible", ExitCode.UNUSABLE)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except CommandFailed as error:
        return _complain(error.sentence, error.code)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost handler: nobody is shown a traceback
        return _complain(*_explained(error))


def _explained(error: Exception) -> tuple[str, ExitCode]:
    """Failures that no command expected where they came from."""
    from keepfast.wire import StorageError

    if isinstance(error, StorageError):
        return str(error), ExitCode.UNUSABLE
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", ExitCode.UNUSABLE
    if isinstance(error, MemoryError):
        return "out of memory; run it on a machine with more of it", ExitCode.REFUSED
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = "" if last is None else f" in {os.path.basename(last.tb_frame.f_code.co_filename)}"
    where += "" if last is None else f", line {last.tb_lineno}"
    what = f"a bug in keepfast: {type(error).__name__}: {error}{where}"
    return f"{what}; please report it with the command line", ExitCode.REFUSED


def _complain(sentence: str, code: ExitCode) -> int:
    print(f"keepfast: {sentence}", file=sys.stderr)
    return code
