"""The option `--audit-log`: who the sessions in records were."""

from __future__ import annotations

from keepfast.cli.output import CommandFailed
from keepfast.pipeline import People


def read_people(files: tuple[str, ...]) -> People:
    """What audit logs of servers say; raises CommandFailed for a file that is none."""
    people = People()
    for name in files:
        before = people.lines
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                people.add(file)
        except OSError as error:
            raise CommandFailed(f"--audit-log {name}: {error.strerror}") from error
        if people.lines == before:
            raise CommandFailed(
                f"--audit-log {name}: no line names a session; it is not the audit log of a server"
            )
    return people
