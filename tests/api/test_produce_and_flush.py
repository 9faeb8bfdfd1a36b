"""Produce to topics with flush.messages: responses wait for the sync, and the reactor does not. Failed appends without a response."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from simulation.workers import one_by_one
from tests.api.lone_broker import alone, no_transactions
from tests.api.responses import later, message
from tests.log_directories.support import IDENTITY, NOW
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import WRITES, FaultyDisk
from tests.support.fakes.worker import Worker
from txbroker.action_queue import ActionQueue
from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.endpoints import Endpoints
from txbroker.api.fetch import FetchHandler
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.produce import ProduceHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.unanswered_appends import Unanswered
from txbroker.broker.event_wiring import EventWiring
from txbroker.broker.partition_state_log import PartitionStateLog
from txbroker.cluster.fetchers import Fetchers
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.local_replica import Isolation
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.directories import LogDirectories
from txbroker.log.log_config import LogConfig
from txbroker.log.producers import BATCHES_REMEMBERED
from txbroker.names import OFFSETS_TOPIC
from txbroker.purgatory import Purgatory
from txbroker.wire.compression import Codec
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.records import Record, build

BROKER = 1
SYNCED, USUAL = "synced", "usual"
TIMEOUT_MS = 1000
OK = ErrorCode.NONE
CONTEXT = RequestContext(0, 9, 1, "test", Session(peer_host="a", peer_port=1, local_host="b", local_port=2, listener="PLAINTEXT", number=1))


class WouldBlock(AssertionError):
    """A sync outside of a worker: the reactor would wait for it."""


class Coordinator:
    """Ignores the partitions of __consumer_offsets."""

    def load(self, index: int) -> Deferred[None]:
        return Deferred()

    def unload(self, index: int) -> None: ...


class ProduceHarness:
    """The handlers, replicas and logs of a broker, without sockets. `settle` runs the workers."""

    def __init__(self, root: DiskPath) -> None:
        self.disk, self.worker, self.clock = FaultyDisk(root.disk), Worker(), Clock()
        self.directory = f"{root}/data"
        configs = {SYNCED: LogConfig(flush_messages=1), USUAL: LogConfig(), OFFSETS_TOPIC: LogConfig(flush_messages=1)}
        directories = LogDirectories(self.disk, self.worker, lambda: "0" * 32, [self.directory], config_for=configs.__getitem__)
        directories.open()
        directories.claim(IDENTITY)
        directories.load(NOW, one_by_one, lambda *_: None)
        directories.start()
        self.purgatory = Purgatory(self.clock, "produce")
        self.actions = ActionQueue(self.clock.callLater)
        self.fetches = Purgatory(self.clock, "fetch")
        deletes = Purgatory(self.clock, "delete records")
        wiring = EventWiring(self.actions, self.purgatory, self.fetches, deletes, directory_lost=lambda: None, fatal=lambda why: None)
        image = ClusterImage()
        self.replicas = Replicas(BROKER, directories, image, wiring, self.clock.seconds, lambda: 10.0)
        others = IsrRequests(BROKER, self.clock), Fetchers(lambda leader: pytest.fail("there is one broker"))
        wiring.wire(self.replicas, Coordinator(), Coordinator(), FetchSessions(0, lambda: 1), *others)  # type: ignore[arg-type]
        directories.wire(wiring)
        for topic in configs:
            self._lead(topic)
        self.worker.run()
        self.disk.done.clear()
        self.blocked = self.disk.fail("sync", error=WouldBlock)
        leaders = CurrentLeaders(self.replicas, image, Endpoints(BROKER, image, []))
        self.handler = ProduceHandler(self.replicas, leaders, self.purgatory, no_transactions(), lambda: NOW, self.clock.seconds)
        self.store = PartitionStateLog(
            OFFSETS_TOPIC,
            self.replicas,
            self.purgatory,
            codec=Codec.NONE,
            timeout_ms=TIMEOUT_MS,
            load_bytes=lambda: 1 << 20,
            in_worker=lambda job: Deferred(),
        )

    def _lead(self, topic: str) -> None:
        state = LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=1,
            leader=BROKER,
            leader_epoch=0,
            isr=[BROKER],
            partition_epoch=0,
            replicas=[BROKER],
            is_new=True,
        )
        states = [LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])]
        self.replicas.leader_and_isr(
            LeaderAndIsrRequest(controller_id=BROKER, controller_epoch=1, topic_states=states, live_leaders=[]), NOW
        )

    def produce(self, *topics: str, acks: int = -1, sequence: int | None = None) -> list[ProduceResponse]:
        """The list that receives the response. `sequence`: of an idempotent producer."""
        producer: dict[str, Any] = {} if sequence is None else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        batch = build([Record(0, NOW, None, b"value")], **producer)
        data = [
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(bytearray(batch)))])
            for topic in topics
        ]
        answer = self.handler(ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=data), CONTEXT)
        answers: list[ProduceResponse] = []
        if isinstance(answer, Deferred):
            answer.addCallback(answers.append)
        elif answer is not None:
            answers.append(message(answer, ProduceRequest, CONTEXT.api_version))
        return answers

    def settle(self) -> None:
        self.blocked.times = 0
        self.worker.run()
        self.clock.advance(0)
        self.blocked.times = None

    def seen(self, topic: str) -> int:
        return self.replicas.get(topic, 0).end_for(Isolation.READ_UNCOMMITTED)


def codes(answers: list[ProduceResponse]) -> list[tuple[int, int]]:
    (answer,) = answers
    return [(p.error_code, p.base_offset) for topic in answer.responses for p in topic.partition_responses]


@pytest.fixture
def harness(directory: DiskPath) -> ProduceHarness:
    return ProduceHarness(directory)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_blocked_sync_delays_only_topics_with_flush_messages(harness: ProduceHarness, acks: int) -> None:
    waiting = harness.produce(SYNCED, acks=acks)
    assert not waiting
    assert harness.seen(SYNCED) == 0, "consumers do not see records that are not durable"
    assert codes(harness.produce(USUAL, acks=acks)) == [(OK, 0)]
    assert harness.seen(USUAL) == 1
    both = harness.produce(USUAL, SYNCED, acks=acks)
    assert not both
    harness.settle()
    assert codes(waiting) == [(OK, 0)]
    assert codes(both) == [(OK, 1), (OK, 1)]
    assert harness.seen(SYNCED) == 2


def test_appends_during_a_sync_share_the_next_sync(harness: ProduceHarness) -> None:
    answers = [harness.produce(SYNCED, acks=1) for _ in range(50)]
    assert not any(answers)
    harness.settle()
    assert [codes(answer) for answer in answers] == [[(OK, offset)] for offset in range(50)]
    file = f"{harness.directory}/{SYNCED}-0/{0:020d}.log"
    assert harness.disk.paths("sync").count(file) == 2


def test_acks_0_waits_for_nothing_and_is_synced(harness: ProduceHarness) -> None:
    assert harness.produce(SYNCED, acks=0) == []
    harness.settle()
    assert harness.replicas.get(SYNCED, 0).log.recovery_point == 1


def test_an_early_duplicate_waits_like_a_batch(harness: ProduceHarness) -> None:
    """Its offset is not known any more. Clients take the code for success, so it must not come before the records are durable."""
    answers = [harness.produce(SYNCED, sequence=sequence) for sequence in range(BATCHES_REMEMBERED + 1)]
    again = harness.produce(SYNCED, sequence=0)
    both = harness.produce(USUAL, SYNCED, sequence=0)
    assert not any(answers) and not again and not both
    harness.settle()
    assert codes(answers[0]) == [(OK, 0)]
    assert codes(again) == [(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]
    assert codes(both) == [(OK, 0), (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]
    assert codes(harness.produce(SYNCED, sequence=0)) == [(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]
    assert codes(harness.produce(USUAL, SYNCED, sequence=0)) == [(OK, 0), (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]
    assert harness.seen(SYNCED) == BATCHES_REMEMBERED + 1


def test_a_commit_of_offsets_waits_too(harness: ProduceHarness) -> None:
    done: list[object] = []
    harness.store.append(0, [(b"key", b"value")], NOW).addBoth(done.append)
    assert not done
    harness.settle()
    assert done == [None]


def test_a_failed_sync_returns_an_error(harness: ProduceHarness) -> None:
    answers = harness.produce(SYNCED, acks=1)
    done: list[Any] = []
    harness.store.append(0, [(b"key", b"value")], NOW).addBoth(done.append)
    harness.disk.fail(path=harness.directory)
    harness.settle()
    assert codes(answers) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
    assert done[0].value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(BrokerError) as error:
        harness.replicas.get(SYNCED, 0)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_sync_longer_than_the_timeout_returns_an_error(harness: ProduceHarness) -> None:
    answers = harness.produce(SYNCED, acks=1)
    harness.clock.advance(TIMEOUT_MS / 1000)
    assert codes(answers) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
    harness.settle()
    assert harness.seen(SYNCED) == 1


def fetch(harness: ProduceHarness, topic: str, *, min_bytes: int = 1) -> list[FetchResponse]:
    """A fetch of partition 0 from offset 0 that waits a second. The list that receives the response."""
    sessions = FetchSessions(0, lambda: 1)
    handler = FetchHandler(
        harness.replicas, ClusterImage(), sessions, harness.fetches, lambda: NOW, **alone(), fetch_max_bytes=1 << 20
    )
    wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    request = FetchRequest(max_wait_ms=1000, min_bytes=min_bytes, max_bytes=1 << 20, topics=[wanted])
    answer: Any = later(handler(request, RequestContext(1, 11, 1, None, CONTEXT.session)))
    answers: list[FetchResponse] = []

    (answer if isinstance(answer, Deferred) else succeed(answer)).addCallback(
        lambda response: answers.append(message(response, FetchRequest, 11))
    )
    return answers


def test_appends_of_a_turn_complete_a_fetch_once_after_their_own_responses(harness: ProduceHarness) -> None:
    harness.actions.begin_turn()
    fetched = fetch(harness, USUAL)
    batch_bytes = 0
    for offset in range(20):
        before = harness.replicas.get(USUAL, 0).log.size
        assert codes(harness.produce(USUAL, acks=1)) == [(OK, offset)]
        batch_bytes = harness.replicas.get(USUAL, 0).log.size - before
        assert fetched == [], "an append does not read for waiting fetches"
    harness.actions.end_turn()
    assert [len(answer.responses[0].partitions[0].records or b"") for answer in fetched] == [20 * batch_bytes]


def test_a_waiting_producer_gets_its_response_before_the_fetches_that_it_completes(harness: ProduceHarness) -> None:
    order: list[str] = []
    harness.clock.advance(0)
    partition = harness.replicas.get(USUAL, 0)

    class Noting:
        def __init__(self, what: str) -> None:
            self.what = what

        def try_complete(self) -> bool:
            if not partition.acknowledged(0):
                return False
            order.append(self.what)
            return True

        def on_expired(self) -> None:
            order.append(f"{self.what} expired")

    harness.fetches.park(Noting("fetch"), [partition.topic_partition], 1000)
    harness.purgatory.park(Noting("produce"), [partition.topic_partition], 1000)
    harness.produce(USUAL)
    assert order == []
    harness.clock.advance(0)
    assert order == ["produce", "fetch"]


def test_a_fetch_that_waits_counts_once(harness: ProduceHarness) -> None:
    fetched = fetch(harness, USUAL, min_bytes=1000)
    while not fetched:
        harness.produce(USUAL)
        harness.clock.advance(0)
    assert harness.replicas.get(USUAL, 0).counts.fetch_requests == 1
    assert fetched[0].responses[0].partitions[0].high_watermark > 1, "the fetch was read several times"


def test_every_consumer_gets_the_last_stable_offset(harness: ProduceHarness) -> None:
    """Kafka returns it to read_uncommitted consumers, too; kafka-python and tools show it."""
    harness.produce(USUAL)
    transactional = build([Record(0, NOW, None, b"value")], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    harness.replicas.get(USUAL, 0).append(memoryview(bytearray(transactional)), NOW)
    (answer,) = fetch(harness, USUAL)
    (partition,) = answer.responses[0].partitions
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)


def test_a_full_disk_is_named_once_a_minute_when_no_response_can_name_it(harness: ProduceHarness, caplog: pytest.LogCaptureFixture) -> None:
    harness.produce(USUAL, SYNCED)  # which writes the leader epoch
    full = harness.disk.fail(WRITES, error=errno.ENOSPC)
    reason = f"appends with acks=0 to log directory {harness.directory} fail, and their connections are closed: cannot append "

    def fail_once(topic: str) -> list[str]:
        """What is logged about appends without a response."""
        caplog.clear()
        with pytest.raises(Unanswered) as raised:
            harness.produce(topic, acks=0)
        assert (raised.value.code, raised.value.is_logged) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
        return [record.message for record in caplog.records if record.name == "txbroker.api"]

    (line,) = fail_once(USUAL)
    assert line.startswith(reason) and line.endswith("No space left on device")
    assert fail_once(SYNCED) == fail_once(USUAL) == [], "of any partition of the directory"
    harness.clock.advance(60)
    (line,) = fail_once(USUAL)
    assert line.startswith(reason) and line.endswith("No space left on device (2 more since the last line)")
    full.times = 0
    assert harness.produce(USUAL, acks=0) == []


def test_another_error_of_an_append_without_a_response_is_logged_with_its_connection(harness: ProduceHarness) -> None:
    with pytest.raises(Unanswered) as raised:
        harness.produce("unknown", acks=0)
    assert (raised.value.code, raised.value.is_logged) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)
