"""The arguments of `keepfast bench`; see app.py."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.arguments import AsJson, Work

_Servers = Annotated[
    list[str], typer.Argument(metavar="HOST:PORT...", help="Client ports of the servers.")
]
_Works = Annotated[
    list[str] | None,
    typer.Option("--work", metavar="NAME", help="Only this workload: get, set, ... Repeatable."),
]
_Seconds = Annotated[float, typer.Option("--seconds", min=0.1, max=3600, help="For each workload.")]
_Connections = Annotated[
    int | None, typer.Option("--connections", min=1, max=10_000, help="Concurrent sessions.")
]
_InFlight = Annotated[
    int | None,
    typer.Option("--in-flight", min=1, max=10_000, help="Requests in flight per session."),
]
_Keys = Annotated[
    int, typer.Option("--keys", min=1, max=10_000_000, help="Znodes that are read and set.")
]
_ValueBytes = Annotated[
    int, typer.Option("--value-bytes", min=0, max=1 << 30, help="Size of each value.")
]
_Children = Annotated[
    int,
    typer.Option("--children", min=1, max=10_000_000, help="Children of the znode that is listed."),
]
_Root = Annotated[
    str,
    typer.Option(
        "--root", metavar="/PATH", help="Where it creates its znodes; deleted afterwards."
    ),
]
_Tls = Annotated[bool, typer.Option("--tls", help="Connect by TLS.")]
_Ca = Annotated[
    str | None, typer.Option("--ca", metavar="FILE", help="Trust these certificates (PEM).")
]
_Cert = Annotated[
    str | None, typer.Option("--cert", metavar="FILE", help="Present this certificate (PEM).")
]
_Key = Annotated[
    str | None,
    typer.Option("--key", metavar="FILE", help="Its private key, unless FILE of --cert holds it."),
]


def bench_command(
    servers: _Servers,
    works: _Works = None,
    seconds: _Seconds = 5.0,
    connections: _Connections = None,
    in_flight: _InFlight = None,
    keys: _Keys = 1000,
    value_bytes: _ValueBytes = 128,
    children: _Children = 100_000,
    root: _Root = "/keepfast-bench",
    tls: _Tls = False,
    ca: _Ca = None,
    cert: _Cert = None,
    key: _Key = None,
    as_json: AsJson = False,
) -> Work:
    """Measure a running ensemble, of Keepfast or Apache, operation by operation.

    Sends requests of many sessions below one znode of its own, and deletes that afterwards. It is
    real load: other clients of these servers will notice.
    """
    from keepfast.cli.bench import BenchArguments, bench
    from keepfast.shell import Tls

    return lambda: bench(
        BenchArguments(
            tuple(servers),
            tuple(works or ()),
            seconds,
            connections,
            in_flight,
            keys,
            value_bytes,
            children,
            root,
            Tls(tls or ca is not None, ca, cert, key),
            as_json,
        )
    )
