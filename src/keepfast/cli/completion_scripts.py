"""Shell completion: scripts made of the texts of --help, so that Tab does not start Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from keepfast.cli.help_layout import summary
from keepfast.lab import SCENARIOS

# A second word such as `backup list` is offered once it is begun: with nothing typed yet, Tab
# shows files, which most commands take there.
_BASH: Final = """\
_keepfast() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    local first="${{COMP_WORDS[1]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    elif [ "${{word#-}}" != "$word" ]; then
        case "$first ${{COMP_WORDS[2]}}" in
{options}
        esac
    else
        case "$first $last" in
{values}
        esac
        if [ "$COMP_CWORD" -eq 2 ] && [ -n "$word" ]; then
            case "$first" in
{seconds}
            esac
        fi
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -o bashdefault -F _keepfast keepfast
"""
# What `source <(...)` needs in a shell whose completion nobody has set up.
_ZSH: Final = """\
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit -D; }}
autoload -U +X bashcompinit && bashcompinit
{bash}"""


class Option(NamedTuple):
    """An option as the help shows it: `-v, --verbose`, `--engine spark|local`."""

    names: tuple[str, ...]
    value: str
    text: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The values there are, where the help lists them."""
        return (
            tuple(self.value.split("|")) if re.fullmatch(r"[a-z]+(\|[a-z]+)+", self.value) else ()
        )


class CommandWords(NamedTuple):
    """A command: what may follow it."""

    name: str
    summary: str
    options: tuple[Option, ...]
    arguments: tuple[str, ...]


def command_words(group: Any) -> list[CommandWords]:
    """Every command in the help."""
    parent = group.make_context("keepfast", [], resilient_parsing=True)
    arguments = {"completion": ("bash", "zsh", "fish"), "lab": tuple(SCENARIOS)}
    found = []
    for name, command in sorted(group.commands.items()):
        if not command.hidden:
            context = command.make_context(name, [], parent=parent, resilient_parsing=True)
            options = tuple(_option(*record) for record in command.records(context)[1])
            found.append(CommandWords(name, summary(command), options, arguments.get(name, ())))
    return found


def _option(shown: str, text: str) -> Option:
    names = re.findall(r"(?:^|, | / )(-[\w-]+)", shown)
    return Option(tuple(names), shown.rpartition(names[-1])[2].strip(), text)


def completion_script(group: Any, shell: str) -> str:
    """The script for a shell to source; `shell` is bash, zsh or fish."""
    commands = command_words(group)
    if shell == "fish":
        return "\n".join(_fish(commands)) + "\n"
    script = _bash(commands)
    return _ZSH.format(bash=script) if shell == "zsh" else script


def _bash(commands: list[CommandWords]) -> str:
    def cases(indent: int, rows: Iterable[tuple[str, tuple[str, ...]]]) -> str:
        return "\n".join(
            f'{" " * indent}{key}) words="{" ".join(words)}" ;;' for key, words in rows
        )

    options = [
        # `backup list` before `backup` with anything else.
        (f'"{one.name}"' if " " in one.name else f'"{one.name} "*', _names(one))
        for one in sorted(commands, key=lambda one: " " not in one.name)
    ]
    values = [
        (f'"{one.name.split()[0]} {name}"', option.choices)
        for one in commands
        for option in one.options
        for name in option.names
        if option.choices
    ]
    values += [(f'"{one.name} {one.name}"', one.arguments) for one in commands if one.arguments]
    seconds = [(one.name.split()[0], (one.name.split()[1],)) for one in commands if " " in one.name]
    return _BASH.format(
        commands=" ".join(one.name for one in commands if " " not in one.name),
        options=cases(12, options),
        values=cases(12, values),
        seconds=cases(16, seconds),
    )


def _names(one: CommandWords) -> tuple[str, ...]:
    """Without the single letters of what has a name, too."""
    return tuple(
        name
        for option in one.options
        for name in option.names
        if len(name) > 2 or len(option.names) == 1
    )


def _fish(commands: list[CommandWords]) -> Iterator[str]:
    for one in commands:
        first, _, second = one.name.partition(" ")
        says = _quoted(one.summary)
        seen = f"__fish_seen_subcommand_from {first}"
        if second:
            yield f"complete -c keepfast -n '{seen}' -a {second} -d {says}"
            seen += f"; and __fish_seen_subcommand_from {second}"
        else:
            yield f"complete -c keepfast -f -n __fish_use_subcommand -a {first} -d {says}"
        if one.arguments:
            yield f"complete -c keepfast -n '{seen}' -f -a '{' '.join(one.arguments)}'"
        for option in one.options:
            names = " ".join(_fish_name(name) for name in option.names)
            takes = " -r" if option.value else ""
            if option.choices:
                takes = f" -x -a '{' '.join(option.choices)}'"
            yield f"complete -c keepfast -n '{seen}' {names}{takes} -d {_quoted(option.text)}"


def _fish_name(name: str) -> str:
    kind = "-l" if name.startswith("--") else "-o" if len(name) > 2 else "-s"
    return f"{kind} {name.lstrip('-')}"


def _quoted(text: str) -> str:
    whole = " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{whole}'"
