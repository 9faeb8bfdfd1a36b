"""The wall clock is stepped while clients wait: waits use the monotonic clock, and only dates use the wall clock."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, find_coordinator
from tests.support.raw_log import batch, fetch, fetch_request, fetched, produce, produce_request
from tests.support.records import Sample
from tests.support.running import ENVIRONMENT, Running, patched
from tests.support.waiting import PATIENCE_S, until
from tests.support.wall_clock import WallClock

MINUTES, DAY = 120, 24 * 60 * 60
LONG_MS = 110_000  # a wait that does not end within the test unless the broker's clock is wrong
SHORT_MS = 1_000  # a wait that ends within the test's patience, unless the broker's clock is wrong
REQUEST_TIMED_OUT, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 7, 25, 27, 79
# While this FIFO exists, a sync of a log waits until it is opened for writing.
HELD = "held-syncs"
HOLD_SYNCS = f"""
import contextlib, txbroker.log.flush as flush
sync = flush.FlushPlan.sync
def held_sync(plan):
    with contextlib.suppress(FileNotFoundError):
        open({HELD!r}).close()
    sync(plan)
flush.FlushPlan.sync = held_sync
"""


class Broker:
    """A broker with a wall clock that can be stepped, and syncs that can be held."""

    def __init__(self, directory: Path) -> None:
        self.clock = WallClock(directory)
        settings = ("group.initial.rebalance.delay.ms=0", f"group.min.session.timeout.ms={SHORT_MS}", "offsets.topic.num.partitions=1")
        overrides = [argument for setting in settings for argument in ("--override", setting)]
        self._running = Running(patched(HOLD_SYNCS), directory, *overrides, environment=ENVIRONMENT | self.clock.environment)
        self._fifo = directory / HELD
        self._running.wait_ready()
        self.address = self._running.address

    def hold_syncs(self) -> None:
        os.mkfifo(self._fifo)

    def release_syncs(self) -> None:
        if not self._fifo.exists():
            return
        fifo = self._fifo.rename(self._fifo.with_suffix(".old"))

        def opened() -> bool:
            try:
                os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                assert error.errno == errno.ENXIO
                return False
            return True

        until(opened, "a sync is held")
        fifo.unlink()

    def stop(self) -> None:
        process = self._running.process
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
        assert "Traceback" not in self._running.written


class Member:
    """A member of a group, with its own connection."""

    def __init__(self, address: str, group: str, session_ms: int = LONG_MS) -> None:
        self._connection = RawConnection(address)
        self._group = group
        self._session_ms = session_ms
        self.member_id = ""
        self.generation = -1

    def send_join(self) -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(group_id=self._group, session_timeout_ms=self._session_ms, rebalance_timeout_ms=LONG_MS,
                                   member_id=self.member_id, group_instance_id=None, protocol_type="consumer", protocols=[protocol])
        self._connection.send(request, 5)
        return request

    def receive_join(self, request: JoinGroupRequest) -> Any:
        answer = self._connection.receive(request)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def take_id(self) -> None:
        """Request a member id (KIP-394)."""
        assert self.receive_join(self.send_join()).error_code == MEMBER_ID_REQUIRED

    def join_until_in(self) -> None:
        """Join; retries if the member id expired, because the session timeout may be short."""
        error = MEMBER_ID_REQUIRED
        while error:
            assert error in (MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID)
            self.member_id = ""
            self.take_id()
            error = self.receive_join(self.send_join()).error_code

    def sync(self) -> int:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")
        request = SyncGroupRequest(group_id=self._group, generation_id=self.generation, member_id=self.member_id, group_instance_id=None,
                                   assignments=[assignment])
        answer: Any = self._connection.call(request, 3)
        return int(answer.error_code)

    def heartbeat(self) -> int:
        request = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.member_id, group_instance_id=None)
        answer: Any = self._connection.call(request, 3)
        return int(answer.error_code)

    def make_stable(self) -> None:
        """Join and sync, as the only member."""
        self.join_until_in()
        assert self.sync() == 0
        assert self.heartbeat() == 0

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Broker(tmp_path_factory.mktemp("broker"))
    find_coordinator(started, "g")  # type: ignore[arg-type]
    yield started
    started.stop()


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.release_syncs()


STEPS = pytest.mark.parametrize(("before", "after"), [(0, MINUTES), (MINUTES, 0), (0, DAY), (DAY, 0)],
                                ids=["2-minutes-forward", "2-minutes-back", "1-day-forward", "1-day-back"])


def one_record() -> bytes:
    return batch([Sample(None, b"record", (), int(time.time() * 1000))])


def see_clock(broker: Broker, topic: str, offset_s: int) -> None:
    """Check that the broker's wall clock is the real one plus `offset_s`, by the timestamp of a record, and let its reactor run."""
    with RawConnection(broker.address) as connection:
        appended = [produce(connection, topic, one_record()) for _ in range(3)]
        assert [one.error_code for one in appended] == [0, 0, 0]
        off_s = appended[-1].log_append_time_ms / 1000 - time.time() - offset_s
        assert abs(off_s) < MINUTES / 2, "the broker has the new time"


def state_of(broker: Broker, group: str) -> str:
    with RawConnection(broker.address) as connection:
        (described,) = connection.call(DescribeGroupsRequest(groups=[group], include_authorized_operations=False), 4).groups
        return str(described.group_state)


@STEPS
def test_waits_are_neither_cut_short_nor_stretched(broker: Broker, request: pytest.FixtureRequest, before: int, after: int) -> None:
    name = request.node.callspec.id
    dated, quiet, polled, synced = (f"{kind}-{name}" for kind in ("dated", "quiet", "polled", "synced"))
    broker.clock.step(before)
    create_topic(broker, dated, configs={"message.timestamp.type": "LogAppendTime"})  # type: ignore[arg-type]
    for topic, configs in ((quiet, {}), (polled, {}), (synced, {"flush.messages": "1"})):
        create_topic(broker, topic, configs=configs)  # type: ignore[arg-type]
    see_clock(broker, dated, before)

    steady, late, starting, silent = members = [
        Member(broker.address, f"steady-{name}"),
        Member(broker.address, f"steady-{name}"),
        Member(broker.address, f"starting-{name}"),
        Member(broker.address, f"silent-{name}", session_ms=SHORT_MS),
    ]
    steady.make_stable()
    late.take_id()
    joining = late.send_join()
    until(lambda: steady.heartbeat() == REBALANCE_IN_PROGRESS, "a join waits for the other member")
    starting.take_id()
    silent.join_until_in()

    connections = long_poll, short_poll, long_produce, short_produce = [RawConnection(broker.address) for _ in range(4)]
    data = one_record()
    polls = [fetch_request(topic, 0, bytes_min=1, wait_ms=wait_ms) for topic, wait_ms in ((polled, LONG_MS), (quiet, SHORT_MS))]
    broker.hold_syncs()
    produces = [produce_request(synced, data) for _ in range(2)]
    produces[0].timeout_ms, produces[1].timeout_ms = LONG_MS, SHORT_MS
    for connection, sent, version in ((long_poll, polls[0], 11), (long_produce, produces[0], 8),
                                      (short_poll, polls[1], 11), (short_produce, produces[1], 8)):
        connection.send(sent, version)
    with RawConnection(broker.address) as connection:
        until(lambda: fetch(connection, synced, 0).error_code == 0 and steady.heartbeat() == REBALANCE_IN_PROGRESS, "all wait")

    broker.clock.step(after)
    see_clock(broker, dated, after)

    # Waits with little time left end although the clock went back.
    assert fetched(short_poll.receive(polls[1])).records == []
    assert short_produce.receive(produces[1]).responses[0].partition_responses[0].error_code == REQUEST_TIMED_OUT
    until(lambda: state_of(broker, f"silent-{name}") == "Empty", "the session of a silent member ends")

    # Waits with much time left continue although the clock went forward.
    assert steady.heartbeat() == REBALANCE_IN_PROGRESS, "the member is still in the group, and the rebalance waits for it"
    assert steady.receive_join(steady.send_join()).error_code == 0
    assert late.receive_join(joining).error_code == 0
    assert (steady.generation, late.generation) == (2, 2)
    assert starting.receive_join(starting.send_join()).error_code == 0, "its member id is still pending"
    with RawConnection(broker.address) as connection:
        assert produce(connection, polled, data).error_code == 0
    assert [record.value for record in fetched(long_poll.receive(polls[0])).records] == [b"record"]
    broker.release_syncs()
    assert long_produce.receive(produces[0]).responses[0].partition_responses[0].error_code == 0
    for opened in (*members, *connections):
        opened.close()
