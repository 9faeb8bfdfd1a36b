"""Replicas of one partition on three brokers: real logs, fetch handlers and fetchers, and a model of the controller.

Nothing happens by itself: a test delivers the controller's states and performs single fetches. A fetch that waits is answered at the end
of the turn (`Broker.end_turn`) in which the partition moves, or when the clock is advanced.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from simulation.memory_disk import MemoryDisk
from tests.api.lone_broker import alone, no_quota
from tests.api.responses import later, message
from tests.log.support import NOW, PARTITION, batch, entries
from txbroker.action_queue import ActionQueue
from txbroker.api.fetch import FetchHandler
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.list_offsets import ListOffsetsHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.cluster.followers import IsrProposal
from txbroker.cluster.local_replica import Leadership
from txbroker.cluster.partition import Partition, Replication
from txbroker.cluster.replica_fetcher import FetcherSettings, ReplicaFetcher
from txbroker.errors import BrokerError, ErrorCode, OutOfResources, StorageError
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.names import TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.messages.list_offsets import ListOffsetsRequest

BROKERS = (1, 2, 3)
TOPIC_ID = bytes(range(16))
LAG_S = 10.0
BACKOFF_S = 1.0
SESSION = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener="PLAINTEXT", number=0)
SETTINGS = FetcherSettings(wait_max_ms=0, min_bytes=1, partition_bytes=400, response_bytes=10_000, backoff_s=BACKOFF_S)


class Broker:
    """One broker with its replica. `up`: it runs."""

    def __init__(self, group: Group, broker_id: int) -> None:
        self.group = group
        self.id = broker_id
        self.up = True
        self.epoch = 100
        self.disk = MemoryDisk()
        self._directory = f"/data/{PARTITION}"
        self.disk.make_directory("/data")
        self._checkpoint = 0
        self.answers: list[Any] = []  # of the last fetches that this broker made
        self.asks = False  # its fetch waits at the leader
        self._start()

    def _start(self) -> None:
        log = Log.open(self._directory, PARTITION, disk=self.disk, config=LogConfig(segment_bytes=1000), now_ms=NOW, clean=False)
        if log.topic_id != TOPIC_ID:
            log.assign_topic_id(TOPIC_ID)
        clock = self.group.clock
        replication = Replication(clock.seconds, lambda: LAG_S, lambda replica, _: self.group.brokers[replica].up)
        self.partition = Partition(self.id, log, self, _flush, replication, high_watermark=self._checkpoint)
        image: Any = SimpleNamespace(topic={PARTITION.topic: SimpleNamespace(partitions={})}.get)
        self.waiting = Purgatory(clock, "fetch")
        self._sessions = FetchSessions(10, iter(range(1, 10**6)).__next__)
        self._actions = ActionQueue(lambda delay_s, call: None)
        replicas: Any = self
        self._fetches = FetchHandler(
            replicas, image, self._sessions, self.waiting, clock.seconds, **alone(), fetch_max_bytes=1 << 20
        )
        self._offsets = ListOffsetsHandler(replicas)
        self._fetcher: ReplicaFetcher | None = None

    def restart(self, checkpoint: int | None = None) -> None:
        """Kill and start: the log is kept, the high watermark is that of the checkpoint, at most what it was."""
        self._checkpoint = min(self.partition.high_watermark, self.partition.high_watermark if checkpoint is None else checkpoint)
        self.epoch += 1
        self.group.proposals = [made for made in self.group.proposals if made[0] is not self]  # the controller answers STALE_BROKER_EPOCH
        self.up = True
        self._start()

    def deliver(self) -> None:
        """Apply the controller's present state (LeaderAndIsr)."""
        state, known = self.group.state, self.partition.state
        if not self.up or (known.leader_epoch, known.partition_epoch) == (state.leader_epoch, state.partition_epoch):
            return  # `Replicas` ignores a state that is not newer, which would void a proposal that waits for its answer
        if state.leader == self.id:
            self._fetcher = None
            self.partition.lead(state)
            return
        changed = self.partition.follow(state)
        if changed or self._fetcher is None:
            self._fetcher = ReplicaFetcher(
                self.id,
                state.leader,
                self.group.settings,
                quota=no_quota(),
                broker_epoch=lambda: self.epoch,
                monotonic_s=self.group.clock.seconds,
                now_ms=lambda: NOW,
            )
            self._fetcher.follow(self.partition)

    def fetch(self, *, lose_answer: bool = False) -> bool:
        """One request to the leader that this broker knows, and its answer. False if there is nothing to ask, or the last one waits."""
        fetcher = self._fetcher
        if not self.up or fetcher is None or self.asks:
            return False
        asked = fetcher.next_request(self.group.fetch_version)
        if asked is None:
            return False
        leader = self.group.brokers.get(self.partition.state.leader)
        if leader is None or not leader.up:
            fetcher.failed()
            return True
        response = leader.serve(asked.request)
        if lose_answer:
            fetcher.failed()
        elif isinstance(response, Deferred):
            self.asks = True
            response.addCallback(self._answered, fetcher)
        else:
            self._answered(response, fetcher)
        leader.end_turn()
        return True

    def _answered(self, response: Any, fetcher: ReplicaFetcher) -> None:
        self.asks = False
        self.answers.append(response)
        fetcher.answered(response)

    def serve(self, request: FetchRequest | ListOffsetsRequest) -> Any:
        """The answer to a follower, by way of the wire's encoding, or a Deferred of it."""
        version = self.group.fetch_version if isinstance(request, FetchRequest) else 7
        received: Any = decode(type(request), version, memoryview(encode_bytes(request, version)))
        context = RequestContext(request.api_key, version, 1, None, SESSION)
        handler: Any = self._fetches if isinstance(request, FetchRequest) else self._offsets
        answer = later(handler(received, context))
        if isinstance(answer, Deferred):
            return answer.addCallback(self._read, request, version)
        return self._read(answer, request, version)

    def _read(self, answer: Any, request: FetchRequest | ListOffsetsRequest, version: int) -> Any:
        response = message(answer, type(request), version)
        if isinstance(request, FetchRequest):
            for topic in response.responses:
                for data in topic.partitions:
                    if not isinstance(data.records, bytes | memoryview | None):
                        data.records = data.records.read()
        return response

    def produce(self, *values: bytes) -> int | None:
        """Append with acks=all semantics left to the test; the last offset, None where it is refused."""
        try:
            return self.partition.append(batch(*values), NOW).last_offset
        except BrokerError:
            return None

    # Replicas, as the handlers see them

    @property
    def broker_id(self) -> int:
        return self.id

    def find(self, topic: str, partition: int) -> Partition | None:
        return self.partition if TopicPartition(topic, partition) == PARTITION else None

    def get(self, topic: str, partition: int) -> Partition:
        found = self.find(topic, partition)
        if found is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def topic_name(self, topic_id: bytes) -> str | None:
        return PARTITION.topic if topic_id == TOPIC_ID else None

    def get_by_id(self, topic_id: bytes, partition: int) -> Partition:
        return self.get(self.topic_name(topic_id) or "", partition)

    # The observer of the partition

    def moved(self, partition: Partition) -> None:
        self._sessions.moved(PARTITION)
        self._actions.add(PARTITION, self._complete)

    def committed(self, partition: Partition) -> None:
        self._sessions.committed(PARTITION)
        self._actions.add(PARTITION, self._complete)

    def _complete(self, key: TopicPartition) -> None:
        for session in self._sessions.take_moved():
            self.waiting.check(session)
        self.waiting.check(key)

    def end_turn(self) -> None:
        """Answer the fetches that wait for what has moved."""
        self._actions.end_turn()

    def truncated(self, partition: Partition) -> None: ...

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        assert isinstance(error, OutOfResources), error

    def isr_proposed(self, partition: Partition, proposal: IsrProposal) -> None:
        self.group.proposals.append((self, proposal))

    def content(self, end: int | None = None) -> list[bytes]:
        """The batches, whole, up to an offset."""
        return [data for _, data in entries(self.partition.log, end=end)]


def _flush(log: Log, done: Callable[[], None]) -> None:
    log.flush()
    done()


class Group:
    """Three brokers and the controller's state of the partition."""

    def __init__(self, fetch_version: int = 17, *, wait_max_ms: int = 0) -> None:
        self.clock = Clock()
        self.settings = SETTINGS._replace(wait_max_ms=wait_max_ms)
        self.fetch_version = fetch_version
        self.proposals: list[tuple[Broker, IsrProposal]] = []
        self.state = Leadership(1, 0, BROKERS, BROKERS, 0)
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in BROKERS}
        self.deliver()

    def deliver(self) -> None:
        """Apply the controller's state on every broker."""
        for broker in self.brokers.values():
            broker.deliver()

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        """A new leader in a new epoch; not delivered yet."""
        kept = isr or tuple(broker for broker in self.state.isr if self.brokers[broker].up) or (leader,)
        self.state = self.state._replace(
            leader=leader, leader_epoch=self.state.leader_epoch + 1, isr=kept, partition_epoch=self.state.partition_epoch + 1
        )

    def answer_proposals(self) -> None:
        """Confirm or refuse what leaders have proposed, as the controller does."""
        proposals, self.proposals = self.proposals, []
        for broker, proposal in proposals:
            state = self.state
            if (proposal.leader_epoch, proposal.partition_epoch) != (state.leader_epoch, state.partition_epoch):
                continue
            if not all(self.brokers[member].up for member in proposal.members):
                broker.partition.isr_refused(proposal)
                continue
            isr = tuple(sorted(proposal.members))
            self.state = state._replace(isr=isr, partition_epoch=state.partition_epoch + 1)
            broker.partition.isr_confirmed(proposal, isr, self.state.partition_epoch)

    @property
    def leader(self) -> Broker:
        return self.brokers[self.state.leader]

    def settle(self) -> None:
        """Deliver and fetch until nothing changes any more."""
        for _ in range(60):
            before = [(broker.partition.log.log_end_offset, broker.partition.high_watermark) for broker in self.brokers.values()]
            state = self.state
            self.deliver()
            for broker in self.brokers.values():
                broker.fetch()
            self.answer_proposals()
            self.clock.advance(BACKOFF_S)
            after = [(broker.partition.log.log_end_offset, broker.partition.high_watermark) for broker in self.brokers.values()]
            running = [broker for broker in self.brokers.values() if broker.up]
            equal = len({broker.partition.log.log_end_offset for broker in running}) == 1
            if before == after and state == self.state and len(self.state.isr) == len(running) and equal:
                return
        raise AssertionError(f"it does not settle: {after}, {self.state}")
