"""Shell completion: scripts with a static word list, so that Tab does not start Python."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from keepfast.cli.help_layout import summary

_BASH: Final = """\
_keepfast() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -o bashdefault -F _keepfast keepfast
"""


class CommandWords(NamedTuple):
    """A command by its first word: what may follow it."""

    name: str
    summary: str
    words: tuple[str, ...]
    options: tuple[str, ...]


def command_words(group: Any) -> list[CommandWords]:
    """Every command in the help; the second word of a two-word command may follow the first."""
    found: dict[str, CommandWords] = {}
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        first, _, second = name.partition(" ")
        options = [
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("-")
        ]
        known = found.get(first, CommandWords(first, summary(command), (), ()))
        words = (*known.words, second) if second else known.words
        every = tuple(dict.fromkeys((*known.options, *options, "--help")))
        found[first] = known._replace(words=words, options=every)
    return list(found.values())


def completion_script(group: Any, shell: str) -> str:
    """The script for a shell to source; `shell` is bash, zsh or fish."""
    commands = command_words(group)
    if shell == "fish":
        return _fish(commands)
    cases = "\n".join(
        f'            {one.name}) words="{" ".join((*one.words, *one.options))}" ;;'
        for one in commands
    )
    names = " ".join(one.name for one in commands)
    script = _BASH.format(commands=names, cases=cases)
    if shell == "zsh":
        return f"autoload -U +X bashcompinit && bashcompinit\n{script}"
    return script


def _fish(commands: list[CommandWords]) -> str:
    lines = []
    for one in commands:
        says = one.summary.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"complete -c keepfast -n __fish_use_subcommand -a {one.name} -d '{says}'")
        seen = f"-n '__fish_seen_subcommand_from {one.name}'"
        lines += [f"complete -c keepfast {seen} -a {word}" for word in one.words]
        for option in one.options:
            kind = "-l" if option.startswith("--") else "-o" if len(option) > 2 else "-s"
            lines.append(f"complete -c keepfast {seen} {kind} {option.lstrip('-')}")
    return "\n".join(lines) + "\n"
