"""Fetch sessions (KIP-227): cached partitions, incremental responses, evictions."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import pytest

from txbroker.api import fetch_sessions
from txbroker.api.fetch_item import FetchClient, FetchItem, PartitionRead, Unusual
from txbroker.api.fetch_sessions import (
    EVICTION_MIN_S,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    SESSION_ITEMS_MAX,
    FetchSession,
    FetchSessions,
)
from txbroker.cluster.followers import SessionUse
from txbroker.cluster.local_replica import CONSUMER
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import NULL_TOPIC_ID, TOPIC_NAME_LENGTH_MAX
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

NOW = 1_000_000


def sessions(slots: int = 10, items_max: int = 1000) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(slots, lambda: next(numbers), items_max=items_max)


def request(
    *partitions: int, session: int = NO_SESSION, epoch: int = INITIAL_EPOCH, offset: int = 0, forget: tuple[int, ...] = ()
) -> FetchRequest:
    wanted = [FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=100) for p in partitions]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def data(records: bytes = b"", high_watermark: int = 5) -> PartitionRead:
    return PartitionRead(high_watermark, high_watermark, 0, records, len(records))


class Planned(NamedTuple):
    items: list[FetchItem]
    session: FetchSession | None
    incremental: bool


def planned(cache: FetchSessions, wanted: FetchRequest, uses_ids: bool, client: FetchClient, now: int) -> Planned:
    return Planned(*cache.plan(cache.find(wanted.session_id, client), wanted, uses_ids, client, now))


def plan(cache: FetchSessions, wanted: FetchRequest, now: int = NOW, privileged: bool = False) -> tuple[int, list[int]]:
    made = planned(cache, wanted, False, FetchClient(7 if privileged else CONSUMER), now)
    return (NO_SESSION if made.session is None else made.session.session_id), [item.partition for item in made.items]


def test_a_session_keeps_its_partitions() -> None:
    cache = sessions()
    session, partitions = plan(cache, request(0, 1, 2))
    assert (session, partitions) == (1, [0, 1, 2])
    assert plan(cache, request(session=1, epoch=1)) == (1, [0, 1, 2])
    assert plan(cache, request(3, session=1, epoch=2, forget=(1,))) == (1, [0, 2, 3])


def test_an_update_changes_the_offset_and_keeps_the_order() -> None:
    cache = sessions()
    plan(cache, request(0, 1))
    made = planned(cache, request(0, session=1, epoch=1, offset=7), False, FetchClient(), NOW)
    assert [(i.partition, i.wanted.fetch_offset) for i in made.items] == [(0, 7), (1, 0)]


def test_a_fetch_without_a_session() -> None:
    cache = sessions()
    assert plan(cache, request(0, epoch=FINAL_EPOCH)) == (NO_SESSION, [0])
    assert len(cache) == 0


def test_the_final_epoch_ends_a_session() -> None:
    cache = sessions()
    plan(cache, request(0))
    plan(cache, request(0, session=1, epoch=FINAL_EPOCH))
    with pytest.raises(BrokerError) as error:
        plan(cache, request(session=1, epoch=1))
    assert error.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_wrong_epoch_is_refused_and_the_session_is_kept() -> None:
    cache = sessions()
    plan(cache, request(0))
    for wrong in (2, 5):
        with pytest.raises(BrokerError) as error:
            plan(cache, request(session=1, epoch=wrong))
        assert error.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert plan(cache, request(session=1, epoch=1)) == (1, [0])


def test_names_and_ids_do_not_mix() -> None:
    cache = sessions()
    plan(cache, request(0))
    with pytest.raises(BrokerError) as error:
        planned(cache, request(session=1, epoch=1), True, FetchClient(), NOW)
    assert error.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_without_partitions_ends() -> None:
    cache = sessions()
    plan(cache, request(0))
    assert plan(cache, request(session=1, epoch=1, forget=(0,))) == (NO_SESSION, [])
    assert len(cache) == 0


def test_only_changed_partitions_are_returned() -> None:
    cache = sessions()
    (item,) = planned(cache, request(0), False, FetchClient(), NOW).items
    assert item.changed(data())
    assert not item.changed(data())
    assert item.changed(data(high_watermark=6))
    assert item.changed(data(high_watermark=6, records=b"r"))
    assert item.changed(PartitionRead(unusual=Unusual(error_code=3)))
    assert item.changed(data(high_watermark=6)), "the end of an error is a change"
    assert not item.changed(data(high_watermark=6))


def test_a_returned_partition_moves_to_the_end() -> None:
    cache = sessions()
    made = planned(cache, request(0, 1, 2), False, FetchClient(), NOW)
    assert made.session is not None
    made.session.served({made.items[0]: data(b"r"), made.items[1]: data()})
    assert plan(cache, request(session=1, epoch=1)) == (1, [1, 2, 0])


def test_a_full_cache_evicts_only_stale_sessions() -> None:
    cache = sessions(slots=2)
    plan(cache, request(0))
    plan(cache, request(0), NOW + 10)
    assert plan(cache, request(0), NOW + 20)[0] == NO_SESSION, "both are in use, so the third gets no session"
    plan(cache, request(session=1, epoch=1), NOW + EVICTION_MIN_S)
    assert plan(cache, request(0), NOW + EVICTION_MIN_S + 20)[0] == 3
    with pytest.raises(BrokerError):
        plan(cache, request(session=2, epoch=1), NOW + EVICTION_MIN_S + 30)
    assert plan(cache, request(session=1, epoch=2), NOW + EVICTION_MIN_S + 30) == (1, [0])


def test_a_full_cache_refuses_a_session_without_checking_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    class Watched(FetchSession):
        @property
        def use(self) -> SessionUse:
            looked_at.append(self.session_id)
            return self._use

        @use.setter
        def use(self, value: SessionUse) -> None:
            self._use = value

    monkeypatch.setattr(fetch_sessions, "FetchSession", Watched)
    cache = sessions(slots=500)
    for number in range(500):
        plan(cache, request(0), privileged=number < 250)
    looked_at.clear()
    assert plan(cache, request(0), NOW + 1)[0] == NO_SESSION
    assert cache.refused_slots == 1
    assert len(set(looked_at)) <= 2
    looked_at.clear()
    assert plan(cache, request(0), NOW + 1, privileged=True)[0] != NO_SESSION
    assert len(set(looked_at)) <= 3, "the least recently used of both kinds, and the new one"
    assert (cache.evicted, len(cache)) == (1, 500)


def test_stale_sessions_of_consumers_and_followers_are_evicted() -> None:
    for stale_kind in (False, True):
        cache = sessions(slots=2)
        plan(cache, request(0), NOW, privileged=stale_kind)
        plan(cache, request(0), NOW + EVICTION_MIN_S, privileged=not stale_kind)
        assert plan(cache, request(0), NOW + EVICTION_MIN_S + 1)[0] == 3
        with pytest.raises(BrokerError):
            plan(cache, request(session=1, epoch=1))
        assert plan(cache, request(session=2, epoch=1))[0] == 2


def test_a_follower_replaces_the_session_of_a_consumer() -> None:
    cache = sessions(slots=1)
    plan(cache, request(0))
    assert plan(cache, request(0), NOW + 1, privileged=True)[0] == 2
    assert plan(cache, request(0), NOW + 2, privileged=True)[0] == NO_SESSION, "but not another follower's"


def test_the_session_epoch_wraps_to_one() -> None:
    cache = sessions()
    made = planned(cache, request(0), False, FetchClient(), NOW)
    assert made.session is not None
    made.session.epoch = 0x7FFFFFFF
    plan(cache, request(session=1, epoch=0x7FFFFFFF))
    assert plan(cache, request(session=1, epoch=1)) == (1, [0])


def test_topics_named_by_id_have_it_in_their_items() -> None:
    made = planned(sessions(), request(0), False, FetchClient(), NOW)
    assert made.items[0].topic_id == NULL_TOPIC_ID


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_repeated_partition_is_returned_once(epoch: int) -> None:
    twice = request(0, 1, 0, epoch=epoch)
    twice.topics[0].partitions[2].fetch_offset = 7
    made = planned(sessions(), twice, False, FetchClient(), NOW)
    assert [(item.partition, item.wanted.fetch_offset) for item in made.items] == [(0, 7), (1, 0)]


def test_a_fetch_of_too_many_partitions_gets_no_session() -> None:
    cache = sessions(items_max=10 * SESSION_ITEMS_MAX)
    assert plan(cache, request(*range(SESSION_ITEMS_MAX + 1)))[0] == NO_SESSION
    assert plan(cache, request(*range(SESSION_ITEMS_MAX)))[0] == 1
    with pytest.raises(BrokerError) as error:
        plan(cache, request(SESSION_ITEMS_MAX, session=1, epoch=1))
    assert error.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_invalid_topic_names_are_not_kept() -> None:
    cache = sessions()
    wanted = request(0)
    wanted.topics[0].topic = "t" * (TOPIC_NAME_LENGTH_MAX + 1)
    assert plan(cache, wanted) == (NO_SESSION, [0])


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    cache = sessions(items_max=3)
    assert plan(cache, request(0, 1))[0] == 1
    assert plan(cache, request(0, 1))[0] == NO_SESSION
    assert plan(cache, request(5))[0] == 2
    with pytest.raises(BrokerError) as error:
        plan(cache, request(2, session=1, epoch=1))
    assert error.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert plan(cache, request(0, 1))[0] == 3, "an ended session frees its partitions"


def test_a_session_is_closed_and_continued_by_its_principal_only() -> None:
    cache = sessions()
    owner, other = FetchClient(principal="User:owner"), FetchClient(principal="User:other")
    planned(cache, request(0), False, owner, NOW)
    assert cache.find(1, other) is None
    for wanted in (request(session=1, epoch=1), request(session=1, epoch=7)):
        with pytest.raises(BrokerError) as error:
            planned(cache, wanted, False, other, NOW)
        assert error.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    planned(cache, request(0, session=1, epoch=FINAL_EPOCH), False, other, NOW)
    assert [item.partition for item in planned(cache, request(session=1, epoch=1), False, owner, NOW).items] == [0]
