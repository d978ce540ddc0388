"""The list of the lab's scenarios, which needs none of the code that runs and audits them."""

from __future__ import annotations

from keepfast.cli.output import ExitCode, Out, print_document
from keepfast.lab import SCENARIOS


def list_scenarios(as_json: bool) -> int:
    """Print the list and return the exit code."""
    out = Out()
    if as_json:
        listed = [
            {"name": one.name, "title": one.title, "servers": one.size}
            for one in SCENARIOS.values()
        ]
        document = {"schema": "keepfast.scenarios/1", "scenarios": listed}
        print_document(out, document | {"exit_code": int(ExitCode.OK)})
    else:
        out.line("Scenarios; play one with `keepfast lab NAME --server apache,keepfast`:")
        out.line()
        rows = [(one.name, str(one.size), one.title) for one in SCENARIOS.values()]
        out.table(("scenario", "servers", "what goes wrong, where it does"), rows, "servers")
    out.flush()
    return ExitCode.OK
