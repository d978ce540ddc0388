"""`keepfast bench`: load on running servers, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.bench import WORKS, BenchFailed, Load, Measured, Work, run_work
from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document, progress_bar
from keepfast.cli.status import addresses_of
from keepfast.client import ClientOptions, InvalidPath, validate_path
from keepfast.shell import Tls, UsageError

_SCHEMA: Final = "keepfast.bench/1"
_HEADS: Final = ("work", "what", "clients", "depth", "ops/s", "p50 ms", "p99 ms", "worst ms")
_NUMBERS: Final = "clients depth ops/s"


@dataclass(frozen=True, slots=True)
class BenchArguments:
    """What the command line says."""

    servers: tuple[str, ...]
    works: tuple[str, ...]
    seconds: float
    connections: int | None
    in_flight: int | None
    keys: int
    value_bytes: int
    children: int
    root: str
    tls: Tls
    as_json: bool


def bench(arguments: BenchArguments) -> int:
    """Measure the works one after another and print the table."""
    works = _chosen(arguments.works)
    try:
        validate_path(arguments.root)
        if arguments.root == "/":
            raise CommandFailed("--root / would be deleted afterwards: name a znode of its own")
        client = ClientOptions(ssl_context=arguments.tls.context())
    except (InvalidPath, UsageError) as error:
        raise CommandFailed(str(error)) from error
    load = Load(
        addresses=tuple(addresses_of(arguments.servers)),
        seconds=arguments.seconds,
        connections=arguments.connections,
        in_flight=arguments.in_flight,
        root=arguments.root,
        keys=arguments.keys,
        value_bytes=arguments.value_bytes,
        children=arguments.children,
        client=client,
    )
    out, measured = Out(), []
    with progress_bar("measuring", len(works)) as bar:
        for work in works:
            try:
                measured.append(run_work(work, load))
            except BenchFailed as failure:
                raise CommandFailed(f"{work.name}: {failure}", ExitCode.REFUSED) from failure
            bar.on_read(work.name, 1)
    if arguments.as_json:
        works_done = [_document(each) for each in measured]
        document = {"schema": _SCHEMA, "works": works_done, "exit_code": int(ExitCode.OK)}
        print_document(out, document)
    else:
        out.table(_HEADS, [_row(each) for each in measured], _NUMBERS)
    out.flush()
    return ExitCode.OK


def _chosen(names: tuple[str, ...]) -> list[Work]:
    unknown = [name for name in names if name not in WORKS]
    if unknown:
        raise CommandFailed(f"no work is called {unknown[0]}; there are: {', '.join(WORKS)}")
    return [WORKS[name] for name in names or WORKS]


def _row(measured: Measured) -> list[str]:
    latencies = measured.latencies
    return [
        measured.work.name,
        measured.work.summary,
        str(measured.connections),
        str(measured.in_flight),
        f"{measured.per_second:,.0f}",
        *(f"{latencies.percentile_us(percent) / 1000:.2f}" for percent in (50, 99)),
        f"{latencies.worst_us / 1000:.2f}",
    ]


def _document(measured: Measured) -> dict[str, object]:
    latencies = measured.latencies
    return {
        "work": measured.work.name,
        "connections": measured.connections,
        "in_flight": measured.in_flight,
        "seconds": round(measured.seconds, 3),
        "count": latencies.count,
        "per_second": round(measured.per_second, 1),
        "p50_us": round(latencies.percentile_us(50), 1),
        "p90_us": round(latencies.percentile_us(90), 1),
        "p99_us": round(latencies.percentile_us(99), 1),
        "p999_us": round(latencies.percentile_us(99.9), 1),
        "worst_us": round(latencies.worst_us, 1),
        "histogram": [
            {"below_us": round(upper, 3), "count": count} for upper, count in latencies.histogram()
        ],
    }
