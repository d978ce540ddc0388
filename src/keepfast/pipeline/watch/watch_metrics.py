"""A watch in Prometheus' words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from keepfast.pipeline.watch.watching import Look

_PREFIX = "keepfast_watch"
_PATIENCE_SECONDS = 10.0


@dataclass(eq=False, slots=True)
class WatchMetrics:
    """The last look, for whoever asks; a collector of prometheus_client."""

    last: Look | None = None
    finished: float = 0.0
    looks: int = 0
    cpu_seconds: float = 0.0

    def note(self, look: Look, now: float) -> None:
        """A look was finished."""
        self.last = look
        if look.unseen is not None:
            return
        self.finished = now
        self.looks += 1
        self.cpu_seconds += look.cpu_seconds

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        look = self.last
        if look is None:
            return
        for name, text, value in (
            ("looks", "Looks at all files.", self.looks),
            ("cpu_seconds", "CPU time that looks took.", self.cpu_seconds),
            ("records", "Records that were read.", look.counts.records),
            ("read_bytes", "Bytes that were new.", look.counts.new_bytes),
            ("reread_bytes", "Bytes read again against bit rot.", look.counts.again_bytes),
        ):
            yield CounterMetricFamily(f"{_PREFIX}_{name}", text, value)
        for name, text, number in (
            ("last_look_timestamp_seconds", "When the last look was finished.", self.finished),
            ("last_look_seconds", "How long the last look took.", look.seconds),
            ("webhook_failing", "Whether alerts wait for the webhook.", float(bool(look.untold))),
        ):
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", text, number)
        yield from self._of_ensembles(look)

    def _of_ensembles(self, look: Look) -> Iterator[Metric]:
        labels = ["ensemble", "severity", "divergence"]
        found = GaugeMetricFamily(f"{_PREFIX}_findings", "Findings that are open.", labels=labels)
        counted = Counter(
            (one.ensemble, one.severity.value, str(one.is_divergence).lower())
            for _, one in look.open
        )
        names = [result.name for result in look.result.ensembles]
        for name in names:
            counted[name, "error", "true"] += 0
        for key, count in sorted(counted.items()):
            found.add_metric(list(key), count)
        unchecked = GaugeMetricFamily(
            f"{_PREFIX}_unchecked", "Things that could not be checked.", labels=["ensemble"]
        )
        committed = GaugeMetricFamily(
            f"{_PREFIX}_committed_zxid", "The last zxid that a majority holds.", labels=["ensemble"]
        )
        for result in look.result.ensembles:
            unchecked.add_metric([result.name], len(result.unchecked))
            if result.committed_zxid is not None:
                committed.add_metric([result.name], result.committed_zxid)
        yield from (found, unchecked, committed)


def serve_metrics(metrics: WatchMetrics, host: str, port: int) -> int:
    """Answer at an address, in a thread; returns the port. Raises OSError."""
    registry = CollectorRegistry()
    registry.register(metrics)
    server, _ = start_http_server(port, host, registry)
    # Each connection has a thread: not for as long as somebody says nothing.
    patient: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("Handler", (patient,), {"timeout": _PATIENCE_SECONDS})
    return int(server.server_port)
