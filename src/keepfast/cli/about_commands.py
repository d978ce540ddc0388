"""The commands about the program itself, and their arguments; see app.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from keepfast.cli.arguments import AsJson, Work
from keepfast.cli.output import ExitCode, Out


def completion_command(
    context: typer.Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")
    ],
) -> Work:
    """Print what a shell needs to complete commands and options.

    bash: put `source <(keepfast completion bash)` into ~/.bashrc; zsh: the same with zsh into
    ~/.zshrc. fish: write it to ~/.config/fish/completions/keepfast.fish.
    """

    def work() -> int:
        from keepfast.cli.completion_scripts import completion_script

        print(completion_script(_program(context), shell), end="")
        return ExitCode.OK

    return work


def manual_command(context: typer.Context) -> Work:
    """Print the manual page.

    `keepfast manual | man -l -` shows it; in ~/.local/share/man/man1/keepfast.1 `man keepfast`
    finds it.
    """

    def work() -> int:
        from keepfast.cli.manual import manual_page

        print(manual_page(_program(context)), end="")
        return ExitCode.OK

    return work


def version_command(as_json: AsJson = False) -> Work:
    """Show the version of Keepfast and of Python, and whether the compiled build runs."""

    def work() -> int:
        import platform

        from keepfast import __version__
        from keepfast.cli.output import print_document

        python = f"{platform.python_implementation()} {platform.python_version()}"
        build, out = _build(), Out()
        if as_json:
            print_document(
                out,
                {
                    "schema": "keepfast.version/1",
                    "keepfast": __version__,
                    "build": build,
                    "python": python,
                    "platform": f"{platform.system()} {platform.machine()}",
                    "exit_code": int(ExitCode.OK),
                },
            )
        else:
            out.line(f"keepfast {__version__} ({build}, {python})")
        out.flush()
        return ExitCode.OK

    return work


def _build() -> str:
    """Which build is running, judged by what was loaded: a compiled module is not a source file."""
    import sys

    from keepfast.tree import Tree

    file = sys.modules[Tree.__module__].__file__
    return "pure" if file is None or file.endswith(".py") else "compiled"


def _program(context: typer.Context) -> Any:
    """The program that a command belongs to."""
    return context.find_root().command


def add_about_commands(app: typer.Typer) -> None:
    """Add them to the program."""
    app.command("completion")(completion_command)
    app.command("manual")(manual_command)
    app.command("version")(version_command)
