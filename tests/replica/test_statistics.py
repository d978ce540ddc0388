"""What a replica counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepfast.replica import Distribution, ReplicaStatistics, Summary


@given(st.lists(st.integers(0, 10**7), max_size=200))
def test_summary_is_that_of_its_values(values: list[int]) -> None:
    for summary in (Summary(), Distribution()):
        for value in values:
            summary.add(value)
        assert summary.count == len(values)
        assert summary.total == sum(values)
        assert summary.least == min(values, default=0)
        assert summary.greatest == max(values, default=0)


@given(st.lists(st.integers(0, 10**6), max_size=50), st.lists(st.integers(0, 10**6), max_size=50))
def test_two_together_are_one_of_all_values(left: list[int], right: list[int]) -> None:
    one, two, both = Distribution(), Distribution(), Distribution()
    for value in left:
        one.add(value)
        both.add(value)
    for value in right:
        two.add(value)
        both.add(value)
    joined = one.with_values(two)
    assert (joined.count, joined.total) == (both.count, both.total)
    assert (joined.least, joined.greatest) == (both.least, both.greatest)
    assert [joined.quantile(q) for q in (0.5, 0.99)] == [both.quantile(q) for q in (0.5, 0.99)]


@given(st.lists(st.integers(0, 999), min_size=1, max_size=200), st.floats(0.01, 1))
def test_quantile_splits_the_values(values: list[int], fraction: float) -> None:
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    found = distribution.quantile(fraction)
    assert found in values
    below = sum(value <= found for value in values)
    assert below >= fraction * len(values)
    assert sum(value < found for value in values) <= fraction * len(values)


def test_large_values_are_kept_to_three_digits__so_the_table_stays_small() -> None:
    distribution = Distribution()
    for value in range(0, 2_000_000, 7):
        distribution.add(value)
    assert 0.99 < distribution.quantile(0.5) / 1_000_000 < 1.01
    assert len(distribution._counts) < 4000


def test_quantile_of_nothing_is_zero() -> None:
    assert Distribution().quantile(0.99) == 0


def test_reads_are_counted_at_zero_ms_until_a_turn_was_slow() -> None:
    statistics = ReplicaStatistics()
    statistics.reads += 10
    statistics.told += 1
    assert statistics.sent == 11
    assert (statistics.latency().count, statistics.latency().greatest) == (10, 0)
    statistics.note_slow_turn(4, 7)
    assert statistics.sent == 11
    latency = statistics.read_latency()
    assert (latency.count, latency.total, latency.least, latency.greatest) == (10, 28, 0, 7)


def test_sizes_of_frames_are_those_without_the_length_field() -> None:
    statistics = ReplicaStatistics()
    statistics.note_frames([b"1" * 24], 24)
    statistics.note_frames([b"1" * 20], 20)
    sizes = statistics.responses
    assert (sizes.last, sizes.least, sizes.greatest) == (16, 16, 20)
    # In a large group each frame counts.
    statistics.note_frames([b"1" * 100_004, b"1" * 24], 100_028)
    assert (sizes.last, sizes.least, sizes.greatest) == (20, 16, 100_000)
    statistics.reset()
    assert statistics.responses.last == -1
