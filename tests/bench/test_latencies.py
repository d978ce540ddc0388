"""The histogram of latencies."""

from keepfast.bench import Latencies


def test_percentiles_are_within_two_percent() -> None:
    latencies = Latencies()
    for microseconds in range(1, 10_001):
        latencies.add(microseconds * 1000)
    for percent in (50, 90, 99):
        assert abs(latencies.percentile_us(percent) / (percent * 100) - 1) < 0.02
    assert latencies.worst_us == 10_000
    assert latencies.percentile_us(100) == 10_000


def test_without_values_everything_is_zero() -> None:
    latencies = Latencies()
    assert latencies.percentile_us(99) == 0
    assert latencies.histogram() == []


def test_histogram_counts_every_value_once() -> None:
    latencies = Latencies()
    for spent in (0, 900, 1100, 5_000_000):
        latencies.add(spent)
    assert sum(count for _, count in latencies.histogram()) == 4
    assert [upper for upper, _ in latencies.histogram()] == sorted(
        upper for upper, _ in latencies.histogram()
    )
