from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.cluster.placement import place
from txbroker.errors import BrokerError, ErrorCode

broker_ids = st.sets(st.integers(0, 1000), min_size=1, max_size=12)


class Fixed(Random):
    """Always the lowest: Kafka's own examples start at 0."""

    def randrange(self, *_: object) -> int:
        return 0


def test_the_round_that_kafka_documents() -> None:
    """The table in the comment of Kafka's AdminUtils: 10 partitions, 5 brokers, replication factor 3."""
    placed = place(dict.fromkeys(range(5)), 10, 3, Fixed())
    assert [placed[p][0] for p in range(10)] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert [placed[p][1] for p in range(10)] == [1, 2, 3, 4, 0, 2, 3, 4, 0, 1]
    assert [placed[p][2] for p in range(10)] == [2, 3, 4, 0, 1, 3, 4, 0, 1, 2]


def test_racks_alternate() -> None:
    """Six brokers in three racks, as in the same comment: the order is 0 3 1 5 4 2."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    placed = place(racks, 6, 3, Fixed())
    assert [placed[p] for p in range(6)] == [(0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3)]


def test_added_partitions_go_on_where_the_first_began() -> None:
    placed = place(dict.fromkeys((1, 2, 3)), 3, 1, Random(0), first_partition=2, after_leader=2)
    assert placed == {2: (1,), 3: (2,), 4: (3,)}


@given(broker_ids, st.integers(1, 60), st.integers(1, 12), st.integers())
def test_replicas_are_different_brokers_evenly_spread(brokers: set[int], partitions: int, factor: int, seed: int) -> None:
    factor = min(factor, len(brokers))
    placed = place(dict.fromkeys(brokers), partitions, factor, Random(seed))
    assert list(placed) == list(range(partitions))
    leaders: Counter[int] = Counter(dict.fromkeys(brokers, 0))
    for replicas in placed.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= brokers
        leaders[replicas[0]] += 1
    assert max(leaders.values()) - min(leaders.values()) <= 1


rack_of_brokers = st.dictionaries(st.integers(0, 50), st.sampled_from("abcd"), min_size=1, max_size=12)


@given(rack_of_brokers, st.integers(1, 40), st.integers(1, 12), st.integers())
def test_no_rack_twice_while_another_is_unused(racks: dict[int, str], partitions: int, factor: int, seed: int) -> None:
    factor = min(factor, len(racks))
    placed = place(dict(racks), partitions, factor, Random(seed))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))


def test_brokers_with_and_without_racks_are_refused_as_in_kafka() -> None:
    with pytest.raises(BrokerError, match=r"Not all brokers have rack information .* set broker.rack of brokers \[2\]") as caught:
        place({1: "a", 2: None}, 4, 1, Fixed())
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_ASSIGNMENT


def test_partitions_added_with_racks_start_at_the_place_of_the_first_leader_in_the_order_of_ids() -> None:
    """Kafka's AdminZkClient looks it up in the list of brokers, and AdminUtils uses it for the list that alternates between racks."""
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}  # alternating: 0 2 1 3
    placed = place(racks, 2, 1, Fixed(), first_partition=1, after_leader=2)
    assert placed == {1: (3,), 2: (0,)}


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 1000, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_placements_are_refused(partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as caught:
        place(dict.fromkeys((1, 2, 3)), partitions, factor, Random(0))
    assert caught.value.code == code


def test_no_broker_at_all() -> None:
    with pytest.raises(BrokerError, match="available brokers is 0"):
        place({}, 1, 1, Random(0))
