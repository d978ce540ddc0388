"""A load generator for running servers, Apache's or ours: `keepfast bench`.

What may live here: the workloads, how requests are kept in flight, and the results. It knows
servers by their protocol only, and prints nothing.
"""

from keepfast.bench.latencies import Latencies
from keepfast.bench.load import BenchFailed, Load, Measured, run_work
from keepfast.bench.works import WORKS, Work

__all__ = ["WORKS", "BenchFailed", "Latencies", "Load", "Measured", "Work", "run_work"]
