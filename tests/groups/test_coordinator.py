"""The coordinator with a simulated clock and `__consumer_offsets` in memory."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.groups.driving import protocols
from tests.groups.memory_store import MemoryStore
from tests.groups.test_records import golden_log
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.groups.coordinator import TOMBSTONES_PER_BATCH, GroupCoordinator
from txbroker.groups.group import Group
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_records import GroupEntry, OffsetEntry, read
from txbroker.groups.group_results import FetchedOffset, JoinAnswer, JoinGroup, MemberIdentity, OffsetCommit, SyncAnswer, SyncGroup
from txbroker.groups.offsets_expiry import expired
from txbroker.names import TopicPartition

E = ErrorCode
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SUBSCRIBED_TO_A = b"\x00\x00\x00\x00\x00\x01\x00\x01a"
DAY_MS = 24 * 60 * 60_000


class World:
    """A coordinator with a clock and a store that outlive it."""

    def __init__(self, store: MemoryStore | None = None, partitions: int = 1, **settings: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_000)
        self.wall_clock_ahead_ms = 1_800_000_000_000
        self.store = store or MemoryStore()
        self.partitions = partitions
        self.config = GroupConfig(**({"initial_rebalance_delay_ms": 0} | settings))
        self.numbers = itertools.count(1)
        self.replace()

    def replace(self) -> None:
        """A new coordinator on the same log, as after a restart."""
        self.coordinator = GroupCoordinator(
            self.clock, lambda: self.now_ms, self.store, self.config, lambda: self.partitions, lambda: str(next(self.numbers))
        )

    def loaded(self) -> World:
        for index in range(self.partitions):
            self.coordinator.load(index)
        self.turns()
        return self

    def turns(self, count: int = 10) -> None:
        for _ in range(count):
            self.clock.advance(0)

    @property
    def now_ms(self) -> int:
        return self.wall_clock_ahead_ms + round(self.clock.seconds() * 1000)

    def join(self, group_id: str = "g", member_id: str = "", **changes: Any) -> Deferred[JoinAnswer]:
        request = {
            "group_id": group_id, "member_id": member_id, "client_id": "c", "client_host": "/host", "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 30_000, "protocol_type": "consumer",
            "protocols": protocols("range", metadata=SUBSCRIBED_TO_A),
        } | changes
        return self.coordinator.join_group(JoinGroup(**request))

    def sync(self, group_id: str, member_id: str, generation_id: int, assignments: dict[str, bytes]) -> Deferred[SyncAnswer]:
        request = SyncGroup(group_id=group_id, member_id=member_id, generation_id=generation_id, assignments=assignments)
        return self.coordinator.sync_group(request)

    def member(self, group_id: str = "g", **changes: Any) -> str:
        """A group of one member, stable."""
        joining = self.join(group_id, member_id_required=False, **changes)
        self.turns()
        answer = now(joining)
        assert answer.error == E.NONE
        assert now(self.sync(group_id, answer.member_id, answer.generation_id, {answer.member_id: b"all"})).error == E.NONE
        return answer.member_id

    def commit(self, offsets: dict[TopicPartition, Any], group_id: str = "g", member_id: str = "", generation_id: int = -1,
               **more: Any) -> Deferred[dict[TopicPartition, ErrorCode]]:
        values = {p: o if isinstance(o, OffsetCommit) else OffsetCommit(offset=o) for p, o in offsets.items()}
        return self.coordinator.commit_offsets(group_id, member_id, None, generation_id, values, **more)

    def offsets(self, group_id: str = "g") -> dict[TopicPartition, int]:
        error, offsets = self.coordinator.fetch_offsets(group_id, None)
        assert error == E.NONE
        return {p: o.offset for p, o in offsets.items()}

    def state(self, group_id: str = "g") -> str:
        (group,) = self.coordinator.describe_groups([group_id])
        return group.state

    def written(self) -> list[Any]:
        return [read(key, value) for _, pairs in self.store.appends for key, value in pairs]


def now(deferred: Deferred[Any]) -> Any:
    """The result of a Deferred that has fired."""
    results: list[Any] = []
    deferred.addCallback(results.append)
    assert results, "it has not fired"
    return results[0]


def waits(deferred: Deferred[Any]) -> bool:
    return not deferred.called


# Where groups live


def test_before_loading_nothing_is_here():
    world = World()
    assert now(world.join()).error == E.NOT_COORDINATOR
    assert world.coordinator.heartbeat("g", "m", None, 1) == E.NOT_COORDINATOR
    assert now(world.sync("g", "m", 1, {})).error == E.NOT_COORDINATOR
    assert world.coordinator.leave_group("g", [MemberIdentity(member_id="m")]) == (E.NOT_COORDINATOR, [])
    assert now(world.commit({A0: 1})) == {A0: E.NOT_COORDINATOR}
    assert world.coordinator.fetch_offsets("g", [A0]) == (E.NOT_COORDINATOR, {})
    assert now(world.coordinator.delete_offsets("g", [A0])) == (E.NOT_COORDINATOR, {})
    assert now(world.coordinator.delete_groups(["g"])) == {"g": E.NOT_COORDINATOR}
    assert world.coordinator.describe_groups(["g"])[0].error == E.NOT_COORDINATOR
    assert world.coordinator.list_groups() == (E.NONE, [])


def test_without_partitions_there_is_no_coordinator():
    world = World(partitions=0)
    assert world.coordinator.partition_of("g") is None
    assert now(world.join()).error == E.NOT_COORDINATOR


def test_while_loading_clients_get_a_retriable_error():
    world = World()
    world.store.hold_reads = True
    loading = world.coordinator.load(0)
    assert now(world.join()).error == E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.heartbeat("g", "m", None, 1) == E.NONE
    assert now(world.sync("g", "m", 1, {})).error == E.REBALANCE_IN_PROGRESS
    assert now(world.commit({A0: 1})) == {A0: E.COORDINATOR_LOAD_IN_PROGRESS}
    assert world.coordinator.fetch_offsets("g", None) == (E.COORDINATOR_LOAD_IN_PROGRESS, {})
    assert world.coordinator.list_groups()[0] == E.COORDINATOR_LOAD_IN_PROGRESS
    again = world.coordinator.load(0)
    world.store.held_reads[0][0].callback(b"")
    assert now(loading) is None and now(again) is None
    assert world.coordinator.list_groups() == (E.NONE, [])
    assert now(world.coordinator.load(0)) is None
    assert len(world.store.held_reads) == 1


@pytest.mark.parametrize("error", [StorageError("the disk is gone"), ValueError("a bug")])
def test_a_partition_that_cannot_be_read_has_no_coordinator_until_it_is_tried_again(error, caplog):
    world = World()
    world.store.read_error = error
    with caplog.at_level(logging.CRITICAL, "txbroker.groups"):
        loading = world.coordinator.load(0)
        world.turns()
    assert now(loading) is None
    assert now(world.join()).error == E.NOT_COORDINATOR
    world.store.read_error = None
    world.loaded()
    assert now(world.join()).error == E.MEMBER_ID_REQUIRED


def test_corrupt_batches_fail_the_load(caplog):
    world = World()
    world.store.put(0, [(b"\x00\x02\x00\x01g", None)])
    world.store.logs[0][0] = world.store.logs[0][0][:-1] + b"x"
    with caplog.at_level(logging.CRITICAL, "txbroker.groups"):
        world.loaded()
    assert now(world.join()).error == E.NOT_COORDINATOR


def test_unloading_while_loading_leaves_nothing(caplog):
    world = World().loaded()
    now(world.commit({A0: 1}))
    world.replace()
    world.store.hold_reads = True
    loading = world.coordinator.load(0)
    world.coordinator.unload(0)
    assert now(loading) is None
    hosted, chunk = world.store.held_reads[0]
    hosted.callback(chunk)
    world.turns()
    assert world.coordinator.list_groups() == (E.NONE, [])
    assert now(world.join()).error == E.NOT_COORDINATOR
    assert not caplog.records
    world.coordinator.unload(0)


def test_unloading_answers_waiting_requests():
    world = World().loaded()
    member = world.member("h")
    joining = world.join(member_id_required=False)
    completing = world.join("h", member)
    follower = world.join("h", member_id_required=False)
    syncing = world.sync("h", member, 2, {})
    world.coordinator.unload(0)
    assert now(joining).error == E.NOT_COORDINATOR
    assert now(completing).error == E.NONE
    assert now(syncing).error == E.REBALANCE_IN_PROGRESS
    assert now(follower).error == E.NOT_COORDINATOR
    assert world.coordinator.heartbeat("h", member, None, 1) == E.NOT_COORDINATOR
    world.coordinator.stop()
    assert not world.clock.getDelayedCalls()
    assert now(world.join()).error == E.COORDINATOR_NOT_AVAILABLE


def test_stopping_answers_waiting_requests_and_leaves_no_timer():
    world = World().loaded()
    world.coordinator.start()
    member = world.member()
    joining = world.join(member_id_required=False)
    world.coordinator.stop()
    assert now(joining).error == E.NOT_COORDINATOR
    assert not world.clock.getDelayedCalls()
    assert world.coordinator.heartbeat("g", member, None, 1) == E.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.list_groups() == (E.COORDINATOR_NOT_AVAILABLE, [])


def test_groups_live_in_the_partition_that_kafka_puts_them_in():
    world = World(partitions=3)
    assert world.coordinator.partition_of("s-group-2") == 0
    assert world.coordinator.partition_of("s-group-1") == 1
    world.coordinator.load(0)
    world.turns()
    assert now(world.join("s-group-2")).error == E.MEMBER_ID_REQUIRED
    assert now(world.join("s-group-1")).error == E.NOT_COORDINATOR


@pytest.mark.parametrize(("group_id", "partition"), [("polygenelubricants", 0), ("", 0), ("a", 47), ("s-group-2", 40)])
def test_every_group_id_has_a_partition(group_id, partition):
    """The first one's hash is the number that has no absolute value in 32 bits, the last one's is negative."""
    assert World(partitions=50).coordinator.partition_of(group_id) == partition


def test_partitions_written_by_apache_kafka_are_served():
    world = World(partitions=3)
    for index in (0, 1):
        world.store.put_log(index, golden_log(index))
    world.loaded()
    assert {(g.group_id, g.state, g.protocol_type) for g in world.coordinator.list_groups()[1]} == {
        ("s-group-1", "Empty", "consumer"), ("s-group-2", "Empty", "consumer"), ("s-group-txn", "Empty", ""),
    }
    error, offsets = world.coordinator.fetch_offsets("s-group-2", [TopicPartition("s-gzip", 0), TopicPartition("s-gzip", 1)])
    assert error == E.NONE
    assert offsets == {
        TopicPartition("s-gzip", 0): FetchedOffset(offset=123, leader_epoch=0, metadata="note of s-group-2"),
        TopicPartition("s-gzip", 1): FetchedOffset(),
    }
    assert world.offsets("s-group-2") == {
        TopicPartition("s-lz4", 0): 0, TopicPartition("s-lz4", 1): 1000, TopicPartition("s-none", 0): 0,
        TopicPartition("s-none", 1): 0, TopicPartition("s-gzip", 0): 123,
    }
    assert world.offsets("s-group-txn") == {TopicPartition("s-txn", 0): 9}
    member = world.join("s-group-2", member_id_required=False)
    world.turns()
    assert now(member).generation_id == 3


def test_a_restart_finds_groups_as_they_were():
    world = World().loaded()
    member = world.member(group_instance_id="i")
    now(world.commit({A0: OffsetCommit(offset=5, leader_epoch=3, metadata="größe"), B0: 7}, "g", member, 1))
    now(world.commit({A1: 9}, "simple"))
    now(world.commit({A1: 9}, "deleted"))
    now(world.coordinator.delete_groups(["deleted"]))
    before = world.coordinator.describe_groups(["g", "simple", "deleted"])
    world.coordinator.stop()
    world.replace()
    world.loaded()
    assert world.coordinator.describe_groups(["g", "simple", "deleted"]) == before
    assert before[0].members[0].assignment == b"all"
    assert world.coordinator.heartbeat("g", member, "i", 1) == E.NONE
    assert world.coordinator.fetch_offsets("g", [A0])[1] == {A0: FetchedOffset(offset=5, leader_epoch=3, metadata="größe")}
    assert world.offsets("simple") == {A1: 9}
    world.clock.advance(10)
    assert world.state() == "Empty"


def test_loading_gives_others_their_turn():
    world = World()
    for n in range(40):
        world.store.put(0, [(f"\0\2\0\3{n:03}".encode(), None)] * 50)
    turns = []
    real = world.clock.callLater
    world.clock.callLater = lambda *a, **k: (turns.append(a), real(*a, **k))[1]  # type: ignore[method-assign]
    loading = world.coordinator.load(0)
    assert waits(loading)
    world.turns()
    assert now(loading) is None
    assert 3 <= len(turns) <= 8


def test_aborted_transactions_and_foreign_records_are_skipped(caplog):
    from txbroker.groups.group_records import offset_key, offset_value
    from txbroker.groups.group_results import CommittedOffset

    def pair(group_id: str, offset: int) -> tuple[bytes, bytes]:
        return offset_key(group_id, A0), offset_value(CommittedOffset(offset=offset, commit_ms=1))

    world = World()
    world.store.put(0, [pair("g", 1)])
    world.store.put(0, [pair("g", 2), pair("h", 2)], producer_id=7, producer_epoch=0, transactional=True)
    world.store.put(0, [pair("i", 3)], producer_id=8, producer_epoch=0, transactional=True)
    world.store.put(0, [(b"\0\3\0\1g", b"\0\0\0\0\0\1\0"), (b"\0\1nonsense", b"\0\3")])
    world.store.put(0, [(b"\0\0\0\0", b"\0\0\0\0\0\0")], producer_id=7, producer_epoch=0, transactional=True, control=True)
    with caplog.at_level(logging.CRITICAL, "txbroker.groups"):
        world.loaded()
    assert world.offsets("g") == {A0: 1}
    assert world.offsets("h") == {}
    assert world.coordinator.fetch_offsets("i", [A0], require_stable=True)[1][A0].error == E.UNSTABLE_OFFSET_COMMIT
    assert world.coordinator.fetch_offsets("i", [A0])[1][A0] == FetchedOffset()


# Membership, as far as it is the coordinator's


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"group_id": "g" * 32_001}, E.INVALID_GROUP_ID),
        ({"member_id": "m"}, E.UNKNOWN_MEMBER_ID),
        ({"session_timeout_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "i" * 40_000}, E.INVALID_REQUEST),
        ({"protocols": protocols("a", "b", "c", metadata=bytes(350_000))}, E.INVALID_REQUEST),
        ({"session_timeout_ms": 6_000}, E.MEMBER_ID_REQUIRED),
        ({"session_timeout_ms": 1_800_000}, E.MEMBER_ID_REQUIRED),
    ],
)
def test_joins_of_a_group_that_does_not_exist(changes, error):
    world = World().loaded()
    answer = now(world.join(**changes))
    assert answer.error == error
    assert len(world.coordinator.list_groups()[1]) == (error == E.MEMBER_ID_REQUIRED)


def test_requests_for_a_group_that_does_not_exist():
    world = World().loaded()
    assert world.coordinator.heartbeat("g", "m", None, 1) == E.UNKNOWN_MEMBER_ID
    assert now(world.sync("g", "m", 1, {})).error == E.UNKNOWN_MEMBER_ID
    error, results = world.coordinator.leave_group("g", [MemberIdentity(member_id="m", group_instance_id="i")])
    assert (error, [(r.member_id, r.group_instance_id, r.error) for r in results]) == (E.NONE, [("m", "i", E.UNKNOWN_MEMBER_ID)])
    assert now(world.commit({A0: 1}, generation_id=3, member_id="m")) == {A0: E.ILLEGAL_GENERATION}
    assert world.coordinator.fetch_offsets("g", [A0]) == (E.NONE, {A0: FetchedOffset()})
    assert world.coordinator.fetch_offsets("g", None) == (E.NONE, {})
    assert now(world.coordinator.delete_offsets("g", [A0])) == (E.GROUP_ID_NOT_FOUND, {})
    assert now(world.coordinator.delete_groups(["g"])) == {"g": E.GROUP_ID_NOT_FOUND}
    (group,) = world.coordinator.describe_groups(["g"])
    assert (group.error, group.state, group.error_message) == (E.GROUP_ID_NOT_FOUND, "Dead", "Group g not found.")
    assert not world.store.appends


@pytest.mark.parametrize("call", ["heartbeat", "sync", "leave", "delete_offsets"])
def test_the_empty_group_id_is_for_offsets_only(call):
    world = World().loaded()
    coordinator = world.coordinator
    answers = {
        "heartbeat": lambda: coordinator.heartbeat("", "m", None, 1),
        "sync": lambda: now(world.sync("", "m", 1, {})).error,
        "leave": lambda: coordinator.leave_group("", [])[0],
        "delete_offsets": lambda: now(coordinator.delete_offsets("", []))[0],
    }
    assert answers[call]() == E.INVALID_GROUP_ID
    assert now(world.commit({A0: 1}, "")) == {A0: E.NONE}
    assert world.offsets("") == {A0: 1}
    assert now(coordinator.delete_groups([""])) == {"": E.NONE}


def test_two_members_two_rebalances():
    world = World().loaded()
    first = world.member()
    given = now(world.join()).member_id
    second = world.join(member_id=given)
    assert waits(second)
    assert world.coordinator.heartbeat("g", first, None, 1) == E.REBALANCE_IN_PROGRESS
    again = now(world.join(member_id=first))
    assert (again.generation_id, again.leader, len(again.members)) == (2, first, 2)
    assert now(second).generation_id == 2
    waiting = world.sync("g", given, 2, {})
    assert waits(waiting)
    assert now(world.sync("g", first, 2, {first: b"1", given: b"2"})).assignment == b"1"
    assert now(waiting).assignment == b"2"
    assert world.coordinator.leave_group("g", [MemberIdentity(member_id=given)])[1][0].error == E.NONE
    assert world.coordinator.heartbeat("g", first, None, 2) == E.REBALANCE_IN_PROGRESS
    assert now(world.join(member_id=first)).generation_id == 3


def test_leaving_and_expired_members_do_not_block_the_others():
    world = World().loaded()
    first = world.member()
    given = now(world.join()).member_id
    again = world.join(member_id=first)
    assert waits(again)
    world.coordinator.leave_group("g", [MemberIdentity(member_id=given)])
    assert now(again).generation_id == 2
    now(world.sync("g", first, 2, {}))
    world.join()
    again = world.join(member_id=first)
    world.clock.advance(9)
    assert waits(again)
    world.clock.advance(1.1)
    assert now(again).generation_id == 3


def test_sessions_of_loaded_members_end_too():
    world = World().loaded()
    world.member()
    world.replace()
    world.loaded()
    world.clock.advance(9)
    assert world.state() == "Stable"
    world.clock.advance(1.1)
    assert world.state() == "Empty"


def test_assignments_are_answered_when_they_are_in_the_log():
    world = World().loaded()
    joining = world.join(member_id_required=False)
    world.turns()
    world.store.hold = True
    syncing = world.sync("g", now(joining).member_id, 1, {"c-1": b"x"})
    assert waits(syncing)
    world.store.complete()
    assert now(syncing).assignment == b"x"


def test_an_answer_that_makes_its_client_ask_again_at_once():
    """The next request arrives while the answer is given: effects still keep their order."""
    world = World().loaded()
    syncs: list[Deferred[SyncAnswer]] = []

    def sync_at_once(answer: JoinAnswer) -> None:
        everything = {m.member_id: m.member_id.encode() for m in answer.members}
        syncs.append(world.sync("g", answer.member_id, answer.generation_id, everything))

    for _ in range(3):
        world.join(member_id_required=False).addCallback(sync_at_once)
    world.turns()
    assert [now(s).assignment for s in syncs] == [b"c-1", b"c-2", b"c-3"]
    assert world.state() == "Stable"


@pytest.mark.parametrize(
    ("append", "reported"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.REBALANCE_IN_PROGRESS),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.POLICY_VIOLATION, E.POLICY_VIOLATION),
        (None, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_the_errors_of_members_when_an_assignment_cannot_be_written(append, reported, caplog):
    world = World().loaded()
    joining = world.join(member_id_required=False)
    world.turns()
    member = now(joining).member_id
    world.store.append_error = ValueError("a bug") if append is None else BrokerError(append)
    with caplog.at_level(logging.CRITICAL, "txbroker.groups"):
        assert now(world.sync("g", member, 1, {})).error == reported
    assert world.state() == "PreparingRebalance"


def test_sessions_end_by_the_clock():
    world = World().loaded()
    member = world.member()
    for _ in range(5):
        world.clock.advance(9)
        assert world.coordinator.heartbeat("g", member, None, 1) == E.NONE
    world.clock.advance(9.9)
    assert world.state() == "Stable"
    world.clock.advance(0.2)
    assert world.state() == "Empty"
    entry = world.written()[-1]
    assert isinstance(entry, GroupEntry)
    assert (entry.record.generation, entry.record.members) == (2, ())


def test_a_thousand_groups_need_one_delayed_call_and_heartbeats_none():
    world = World().loaded()
    members = {f"g{n}": world.member(f"g{n}") for n in range(1_000)}
    calls = []
    real = world.clock.callLater
    world.clock.callLater = lambda *a, **k: (calls.append(a), real(*a, **k))[1]  # type: ignore[method-assign]
    for _ in range(3):
        for group_id, member in members.items():
            assert world.coordinator.heartbeat(group_id, member, None, 1) == E.NONE
    assert not calls
    assert len(world.clock.getDelayedCalls()) == 1
    world.clock.advance(9)
    for group_id, member in members.items():
        world.coordinator.heartbeat(group_id, member, None, 1)
    world.clock.advance(9)
    assert {world.state(g) for g in members} == {"Stable"}
    assert len(calls) < 10


# Offsets


def test_commits_are_seen_when_they_are_in_the_log():
    world = World().loaded()
    world.store.hold = True
    committing = world.commit({A0: OffsetCommit(offset=5, leader_epoch=2, metadata="note"), A1: OffsetCommit(offset=6, metadata=None)})
    assert waits(committing)
    assert world.coordinator.fetch_offsets("g", [A0])[1] == {A0: FetchedOffset()}
    assert world.coordinator.fetch_offsets("g", [A0], require_stable=True)[1] == {A0: FetchedOffset(error=E.UNSTABLE_OFFSET_COMMIT)}
    world.store.complete()
    assert now(committing) == {A0: E.NONE, A1: E.NONE}
    assert world.coordinator.fetch_offsets("g", [A0, B0], require_stable=True)[1] == {
        A0: FetchedOffset(offset=5, leader_epoch=2, metadata="note"), B0: FetchedOffset(),
    }
    assert world.coordinator.fetch_offsets("g", None)[1][A1] == FetchedOffset(offset=6)
    ((partition, pairs),) = world.store.appends
    assert partition == 0
    assert next(read(*p) for p in pairs).offset.commit_ms == world.now_ms


@pytest.mark.parametrize(
    ("append", "reported"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.REQUEST_TIMED_OUT),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.RECORD_LIST_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.INVALID_FETCH_SIZE, E.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_commits_that_cannot_be_written(append, reported, caplog):
    world = World().loaded()
    now(world.commit({A0: 1}))
    world.store.hold = True
    committing = world.commit({A0: 2})
    with caplog.at_level(logging.CRITICAL, "txbroker.groups"):
        world.store.complete(append)
    assert now(committing) == {A0: reported}
    assert world.offsets() == {A0: 1}
    assert world.coordinator.fetch_offsets("g", [A0], require_stable=True)[1][A0].offset == 1


def test_long_metadata_is_refused_for_its_partition_alone():
    world = World(offset_metadata_max=10).loaded()
    commit = {A0: OffsetCommit(offset=1, metadata="ä" * 10), A1: OffsetCommit(offset=1, metadata="a" * 11)}
    assert now(world.commit(commit)) == {A0: E.NONE, A1: E.OFFSET_METADATA_TOO_LARGE}
    assert world.offsets() == {A0: 1}
    assert now(world.commit({A1: commit[A1]}, "new")) == {A1: E.OFFSET_METADATA_TOO_LARGE}
    assert [g.group_id for g in world.coordinator.list_groups()[1]] == ["g"]


def test_members_commit_with_their_generation_and_others_not_at_all():
    world = World().loaded()
    member = world.member()
    assert now(world.commit({A0: 1}, "g", member, 1)) == {A0: E.NONE}
    assert now(world.commit({A0: 2}, "g", member, 0)) == {A0: E.ILLEGAL_GENERATION}
    assert now(world.commit({A0: 2}, "g", "other", 1)) == {A0: E.UNKNOWN_MEMBER_ID}
    assert now(world.commit({A0: 2})) == {A0: E.UNKNOWN_MEMBER_ID}
    assert world.offsets() == {A0: 1}
    world.coordinator.leave_group("g", [MemberIdentity(member_id=member)])
    assert now(world.commit({A0: 2})) == {A0: E.NONE}


def test_deleting_offsets_spares_what_members_subscribe_to():
    world = World().loaded()
    member = world.member()
    now(world.commit({A0: 1, B0: 2}, "g", member, 1))
    answer = now(world.coordinator.delete_offsets("g", [A0, B0, TopicPartition("b", 9)]))
    assert answer == (E.NONE, {A0: E.GROUP_SUBSCRIBED_TO_TOPIC, B0: E.NONE, TopicPartition("b", 9): E.NONE})
    assert world.offsets() == {A0: 1}
    assert world.written()[-2:] == [OffsetEntry("g", B0, None), OffsetEntry("g", TopicPartition("b", 9), None)]
    world.coordinator.leave_group("g", [MemberIdentity(member_id=member)])
    assert now(world.coordinator.delete_offsets("g", [A0])) == (E.NONE, {A0: E.NONE})
    assert world.state() == "Empty"


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"protocol_type": "connect"}, (E.NON_EMPTY_GROUP, {})),
        ({"protocols": protocols("range", metadata=b"unreadable")}, (E.NONE, {B0: E.GROUP_SUBSCRIBED_TO_TOPIC})),
    ],
)
def test_deleting_offsets_of_groups_whose_subscriptions_are_unknown(changes, answer):
    world = World().loaded()
    member = world.member(**changes)
    now(world.commit({B0: 2}, "g", member, 1))
    assert now(world.coordinator.delete_offsets("g", [B0])) == answer
    assert world.offsets() == {B0: 2}


def test_a_deletion_that_cannot_be_written_deletes_nothing(caplog):
    world = World().loaded()
    now(world.commit({A0: 1}))
    world.store.append_error = BrokerError(E.NOT_ENOUGH_REPLICAS)
    with caplog.at_level(logging.CRITICAL, "txbroker.groups"):
        assert now(world.coordinator.delete_offsets("g", [A0])) == (E.NONE, {A0: E.COORDINATOR_NOT_AVAILABLE})
        assert now(world.coordinator.delete_groups(["g"])) == {"g": E.COORDINATOR_NOT_AVAILABLE}
    assert world.offsets() == {A0: 1}


def test_offsets_of_deleted_topics_go_with_tombstones():
    world = World(partitions=3).loaded()
    member = world.member("g")
    now(world.commit({A0: 1, A1: 1, B0: 1}, "g", member, 1))
    now(world.commit({A0: 1}, "simple"))
    assert now(world.coordinator.topics_deleted(["a", "never-committed"])) is None
    assert world.offsets("g") == {B0: 1}
    assert world.state("g") == "Stable"
    assert world.state("simple") == "Dead"
    assert OffsetEntry("simple", A0, None) in world.written()
    world.replace()
    world.loaded()
    assert world.offsets("g") == {B0: 1}


def test_topics_that_are_deleted_while_a_partition_loads():
    world = World().loaded()
    now(world.commit({A0: 1, B0: 1}))
    world.replace()
    world.store.hold_reads = True
    world.coordinator.load(0)
    now(world.coordinator.topics_deleted(["a"]))
    world.store.hold_reads = False
    hosted, chunk = world.store.held_reads[0]
    hosted.callback(chunk)
    world.turns()
    assert world.offsets() == {B0: 1}


def test_many_tombstones_go_in_several_batches():
    world = World().loaded()
    now(world.commit({TopicPartition("a", n): n for n in range(TOMBSTONES_PER_BATCH + 1)}))
    now(world.coordinator.topics_deleted(["a"]))
    assert [len(pairs) for _, pairs in world.store.appends[1:]] == [TOMBSTONES_PER_BATCH, 1]
    assert world.state() == "Dead"


# Expiry


def expiring(**settings: Any) -> World:
    world = World(**settings).loaded()
    world.coordinator.start()
    return world


def days(world: World, count: float) -> None:
    """Time passes with its expiry checks."""
    for _ in range(round(count * 24)):
        world.clock.advance(3_600)


def test_offsets_of_simple_consumers_expire_by_their_commit():
    world = expiring()
    now(world.commit({A0: 1}))
    days(world, 4)
    now(world.commit({A1: 1}))
    days(world, 2.9)
    assert world.offsets() == {A0: 1, A1: 1}
    days(world, 0.2)
    assert world.offsets() == {A1: 1}
    days(world, 4)
    assert world.state() == "Dead"
    assert world.written()[-1] == OffsetEntry("g", A1, None)


def test_offsets_of_a_group_expire_when_it_has_been_empty_for_long():
    world = expiring()
    member = world.member(session_timeout_ms=1_800_000)
    now(world.commit({A0: 1}, "g", member, 1))
    for _ in range(10 * 24 * 4):
        world.clock.advance(900)
        world.coordinator.heartbeat("g", member, None, 1)
    assert world.offsets() == {A0: 1}
    world.coordinator.leave_group("g", [MemberIdentity(member_id=member)])
    days(world, 6.9)
    assert world.offsets() == {A0: 1}
    days(world, 0.2)
    assert world.state() == "Dead"
    assert world.written()[-2:] == [OffsetEntry("g", A0, None), GroupEntry("g", None)]
    world.replace()
    world.loaded()
    assert world.coordinator.list_groups()[1] == []


def test_a_live_group_loses_offsets_of_topics_it_left():
    world = expiring()
    member = world.member(session_timeout_ms=1_800_000)
    now(world.commit({A0: 1, B0: 1}, "g", member, 1))
    for _ in range(round(7.1 * 24 * 4)):
        world.clock.advance(900)
        world.coordinator.heartbeat("g", member, None, 1)
    assert world.offsets() == {A0: 1}


def test_a_live_group_of_another_protocol_type_keeps_its_offsets():
    world = expiring()
    member = world.member(session_timeout_ms=1_800_000, protocol_type="connect")
    now(world.commit({B0: 1}, "g", member, 1))
    for _ in range(round(7.1 * 24 * 4)):
        world.clock.advance(900)
        world.coordinator.heartbeat("g", member, None, 1)
    assert world.offsets() == {B0: 1}


def test_offsets_with_a_retention_time_of_their_own():
    world = expiring()
    now(world.commit({A0: 1}, retention_ms=DAY_MS))
    now(world.commit({A1: 1}, retention_ms=30 * DAY_MS))
    assert world.written()[0].offset.expire_ms == world.now_ms + DAY_MS
    days(world, 0.9)
    assert world.offsets() == {A0: 1, A1: 1}
    days(world, 0.2)
    assert world.offsets() == {A1: 1}
    days(world, 20)
    assert world.offsets() == {A1: 1}


def test_an_offset_being_committed_does_not_expire():
    world = expiring()
    now(world.commit({A0: 1}))
    days(world, 6.9)
    world.store.hold = True
    committing = world.commit({A0: 2})
    days(world, 0.2)
    world.store.complete()
    assert now(committing) == {A0: E.NONE}
    assert world.offsets() == {A0: 2}
    assert not world.store.hosted


def test_expiry_that_cannot_be_written_is_tried_again(caplog):
    world = expiring()
    now(world.commit({A0: 1}))
    days(world, 6.9)
    world.store.append_error = BrokerError(E.NOT_ENOUGH_REPLICAS)
    with caplog.at_level(logging.CRITICAL, "txbroker.groups"):
        days(world, 1)
    assert world.offsets() == {A0: 1}
    world.store.append_error = None
    days(world, 0.1)
    assert world.state() == "Dead"


def test_an_empty_group_waits_for_the_owner_of_an_id_it_gave_out():
    world = expiring(offsets_retention_check_interval_ms=1_000)
    given = now(world.join()).member_id
    world.clock.advance(5)
    joining = world.join(member_id=given)
    world.turns()
    assert now(joining).error == E.NONE
    now(world.sync("g", given, 1, {}))
    world.coordinator.leave_group("g", [MemberIdentity(member_id=given)])
    world.clock.advance(1.1)
    assert world.state() == "Dead"


# Administration


def test_listing_with_filters():
    world = World().loaded()
    world.member("stable")
    world.join("forming", member_id_required=False)
    now(world.commit({A0: 1}, "simple"))
    rows = world.coordinator.list_groups()[1]
    assert {(r.group_id, r.protocol_type, r.state, r.group_type) for r in rows} == {
        ("stable", "consumer", "Stable", "classic"), ("forming", "consumer", "PreparingRebalance", "classic"),
        ("simple", "", "Empty", "classic"),
    }

    def names(*filters: list[str]) -> set[str]:
        return {r.group_id for r in world.coordinator.list_groups(*filters)[1]}

    assert names(["stable", "EMPTY"]) == {"stable", "simple"}
    assert names(["Nonsense"]) == set()
    assert names([], ["Classic"]) == {"stable", "forming", "simple"}
    assert names([], ["consumer"]) == set()
    assert names(["Stable"], ["classic", "consumer"]) == {"stable"}


def test_describing_shows_assignments_of_stable_groups_only():
    world = World().loaded()
    member = world.member(group_instance_id="i")
    (group,) = world.coordinator.describe_groups(["g"])
    assert (group.state, group.protocol_type, group.protocol_name, group.error) == ("Stable", "consumer", "range", E.NONE)
    (row,) = group.members
    assert (row.member_id, row.group_instance_id, row.client_id, row.client_host) == (member, "i", "c", "/host")
    assert (row.metadata, row.assignment) == (SUBSCRIBED_TO_A, b"all")
    world.join(member_id_required=False)
    (group,) = world.coordinator.describe_groups(["g"])
    assert (group.state, group.protocol_name) == ("PreparingRebalance", "")
    assert {(m.metadata, m.assignment) for m in group.members} == {(b"", b"")}


def test_groups_with_members_are_not_deleted():
    world = World().loaded()
    member = world.member()
    now(world.commit({A0: 1}, "g", member, 1))
    now(world.commit({A0: 1}, "h"))
    assert now(world.coordinator.delete_groups(["g", "h", "unknown", "h"])) == {
        "g": E.NON_EMPTY_GROUP, "h": E.NONE, "unknown": E.GROUP_ID_NOT_FOUND,
    }
    world.coordinator.leave_group("g", [MemberIdentity(member_id=member)])
    assert now(world.coordinator.delete_groups(["g"])) == {"g": E.NONE}
    assert world.written()[-2:] == [OffsetEntry("g", A0, None), GroupEntry("g", None)]
    assert world.coordinator.list_groups()[1] == []


def test_a_group_that_is_used_again_while_it_is_deleted_lives_on():
    world = World().loaded()
    now(world.commit({A0: 1}))
    world.store.hold = True
    deleting = world.coordinator.delete_groups(["g"])
    given = now(world.join()).member_id
    committing = world.commit({A1: 2})
    world.store.complete()
    assert now(deleting) == {"g": E.NONE}
    world.store.complete()
    assert now(committing) == {A1: E.NONE}
    assert world.offsets() == {A1: 2}
    joining = world.join(member_id=given)
    world.turns()
    assert now(joining).error == E.NONE


def test_writes_that_end_after_the_partition_is_gone():
    world = World().loaded()
    member = world.member()
    world.store.hold = True
    committing = world.commit({A0: 1}, "g", member, 1)
    world.join(member_id=member)
    syncing = world.sync("g", member, 2, {})
    deleting = world.coordinator.delete_offsets("g", [B0])
    world.coordinator.unload(0)
    assert now(syncing).error == E.NOT_COORDINATOR
    for _ in range(3):
        world.store.complete()
    assert now(committing) == {A0: E.NONE}
    assert now(deleting) == (E.NONE, {B0: E.NONE})
    world.loaded()
    assert world.offsets() == {A0: 1}


def test_an_error_in_one_group_does_not_keep_others_from_expiring(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    world = expiring()
    now(world.commit({A0: 1}, "broken"))
    now(world.commit({A0: 1}, "g"))

    def failing(group: Group, *arguments: Any) -> list[TopicPartition]:
        if group.group_id == "broken":
            raise RuntimeError("a bug")
        return expired(group, *arguments)

    monkeypatch.setattr("txbroker.groups.coordinator.expired", failing)
    days(world, 7.1)
    assert world.state() == "Dead"
    assert "group broken: internal error while expiring its offsets" in caplog.text
    monkeypatch.undo()
    days(world, 0.2)
    assert world.state("broken") == "Dead"
