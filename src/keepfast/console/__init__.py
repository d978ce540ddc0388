"""The console: one web page, served by one command, that shows any ensemble, Apache's or ours.

What may live here: polling and watching servers on behalf of people, the page and its HTTP API, and
what keeps both safe. What may not: any judgement that `client` (is it healthy), `storage` and
`pipeline` (is the data proven) already make; the console shows theirs.

    watching   servers polled; what is wrong, in plain words, with the command that helps
    tree       znodes, children, search, through sessions of the client package
    past       history, state at a moment, differences, from the servers' files
    proof      audits in the background
    access     who may ask: Host, Origin, tokens, logins
    web        routes, server-sent events, static files
"""

from keepfast.console.console_options import ConsoleOptions, ConsoleRefused
from keepfast.console.web_server import run_console

__all__ = ["ConsoleOptions", "ConsoleRefused", "run_console"]
