"""Several brokers with replicated partitions of `__consumer_offsets`, in one thread and without real time.

Logs, partitions, fetchers, the group coordinator and the handlers of its APIs are the real ones. The network between them, and the
controller (`model_controller.py`), are models: requests take a random time, and may be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.python.failure import Failure

from simulation.memory_disk import MemoryDisk
from simulation.workers import SimulatedWorkers
from tests.api.lone_broker import alone, no_quota
from tests.api.responses import later, message
from tests.log_directories.support import NOW, DirectoryHarness
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.process_clock import ProcessClock
from tests.support.fakes.reactor import FakeReactor
from txbroker.action_queue import ActionQueue
from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.endpoints import Endpoints
from txbroker.api.fetch import FetchHandler
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.find_coordinator import FindCoordinatorHandler
from txbroker.api.group_membership import HeartbeatHandler, JoinGroupHandler, LeaveGroupHandler, SyncGroupHandler
from txbroker.api.group_offsets import OffsetCommitHandler, OffsetFetchHandler
from txbroker.api.list_offsets import ListOffsetsHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.write_txn_markers import WriteTxnMarkersHandler
from txbroker.broker.event_wiring import EventWiring
from txbroker.broker.partition_state_log import PartitionStateLog
from txbroker.cluster.fetcher_loop import FetcherLoop
from txbroker.cluster.fetchers import Fetchers
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.replica_fetcher import FetcherSettings, ReplicaFetcher
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.groups.group_config import GroupConfig
from txbroker.names import OFFSETS_TOPIC, coordinator_partition
from txbroker.purgatory import Purgatory
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.compression import Codec
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.join_group import JoinGroupRequest
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from txbroker.wire.messages.leave_group import LeaveGroupRequest
from txbroker.wire.messages.list_offsets import ListOffsetsRequest
from txbroker.wire.messages.offset_commit import OffsetCommitRequest
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest
from txbroker.wire.messages.sync_group import SyncGroupRequest
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest
from txbroker.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from txbroker.wire.schema import Request

LISTENER = "PLAINTEXT"
LAG_S = 6.0
SESSION_MS = 10_000
COMMIT_TIMEOUT_MS = 5_000
CLIENT_TIMEOUT_S = 40.0
SETTINGS = FetcherSettings(wait_max_ms=200, min_bytes=1, partition_bytes=2_000, response_bytes=10_000, backoff_s=0.2)
VERSIONS: dict[type[Request], int] = {
    FindCoordinatorRequest: 4,
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 5,
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 9,
    FetchRequest: 17,
    ListOffsetsRequest: 7,
    WriteTxnMarkersRequest: 2,
}
MARKERS_TIMEOUT_MS = 3_000
SESSION = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener=LISTENER, number=0)


class Lost(Exception):
    """The client received no response."""


class NoCreation:
    """The topic exists; a broker that does not know it yet cannot create it."""

    def internal(self, name: str) -> Deferred[None]:
        return fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is not known yet"))


class Process:
    """One run of a broker, on logs that survive it."""

    def __init__(self, group: BrokerGroup, broker_id: int, disk: MemoryDisk, epoch: int) -> None:
        self.group = group
        self.id = broker_id
        self.epoch = epoch
        self.waiting: dict[Deferred[Any], None] = {}  # requests of clients, in their order
        self._disk = disk
        clock = self.clock = ProcessClock(group.reactor)
        workers = SimulatedWorkers(clock.callLater, lambda: group.delay_s("disk"))
        self._directories = DirectoryHarness(DiskPath(disk, "/data"), **group.log_config)
        directories = self._directories.start()
        produce, fetch, deletes = [Purgatory(clock, name) for name in ("produce", "fetch", "deletes")]
        wiring = EventWiring(ActionQueue(clock.callLater), produce, fetch, deletes, directory_lost=lambda: None, fatal=group.failed)
        self.image = ClusterImage()
        self.replicas = Replicas(broker_id, directories, self.image, wiring, clock.seconds, lambda: LAG_S)
        store = PartitionStateLog(
            OFFSETS_TOPIC,
            self.replicas,
            produce,
            codec=Codec.NONE,
            timeout_ms=COMMIT_TIMEOUT_MS,
            load_bytes=lambda: 3_000,
            in_worker=workers.in_worker,
        )
        self.coordinator = GroupCoordinator(
            clock, self._now_ms, store, group.config, self._partition_count, lambda: f"{broker_id}-{next(group.numbers)}"
        )
        sessions = FetchSessions(10, lambda: next(group.numbers))
        self.isr_requests = IsrRequests(broker_id, clock)
        self.isr_requests.begin(epoch, self._alter_partition)
        self._fetchers = Fetchers(self._fetcher_loop)
        no_transactions: Any = None
        wiring.wire(self.replicas, self.coordinator, no_transactions, sessions, self.isr_requests, self._fetchers)
        directories.wire(wiring)
        creation: Any = NoCreation()
        endpoints = Endpoints(broker_id, self.image, [])
        leaders = CurrentLeaders(self.replicas, self.image, endpoints)
        handlers = [
            FetchHandler(
                self.replicas, self.image, sessions, fetch, clock.seconds, **{**alone(), "leaders": leaders}, fetch_max_bytes=1 << 20
            ),
            ListOffsetsHandler(self.replicas),
            FindCoordinatorHandler(self.image, endpoints, creation),
            JoinGroupHandler(self.coordinator),
            SyncGroupHandler(self.coordinator),
            HeartbeatHandler(self.coordinator),
            LeaveGroupHandler(self.coordinator),
            OffsetCommitHandler(self.coordinator, self.image),
            OffsetFetchHandler(self.coordinator, self.image),
            WriteTxnMarkersHandler(self.replicas, self.coordinator, produce, self._now_ms, MARKERS_TIMEOUT_MS),
        ]
        self._handlers: dict[type[Request], Any] = {handler.request: handler for handler in handlers}
        self.coordinator.start()
        self._every(LAG_S / 2, self.replicas.check_followers)
        self._every(0.05, self._directories.worker.run)

    def kill(self) -> None:
        """kill -9: what was written stays, and connections are reset."""
        self.clock.running = False
        self._directories.crash()
        for request in list(self.waiting):
            request.errback(Lost(f"broker {self.id} was killed"))

    def controlled(self, request: LeaderAndIsrRequest | UpdateMetadataRequest) -> None:
        """Carry out a request of the controller."""
        if isinstance(request, LeaderAndIsrRequest):
            self.replicas.leader_and_isr(request, self._now_ms())
        else:
            self.image.apply(request)

    def serve(self, request: Request) -> Deferred[Any]:
        """The response of the handler."""
        cls = type(request)
        version = VERSIONS[cls]
        received = decode(cls, version, memoryview(encode_bytes(request, version)))
        context = RequestContext(cls.api_key, version, 1, "client", SESSION)
        handler = self._handlers[cls]

        def failed(failure: Failure) -> Any:
            failure.trap(BrokerError)
            return handler.failed(received, context, failure.value)

        return maybeDeferred(lambda: later(handler(received, context))).addErrback(failed).addCallback(_received, cls, version)

    def _partition_count(self) -> int:
        topic = self.image.topic(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def _now_ms(self) -> int:
        return NOW + int(self.clock.seconds() * 1000)

    def _every(self, seconds: float, work: Callable[[], Any]) -> None:
        def again() -> None:
            work()
            self.clock.callLater(seconds, again)

        self.clock.callLater(seconds, again)

    def _alter_partition(self, request: Any) -> Deferred[Any]:
        return self.group.between(self, None, lambda: succeed(self.group.alter_partition(request)), 2.0)

    def _fetcher_loop(self, leader_id: int) -> FetcherLoop:
        fetcher = ReplicaFetcher(
            self.id,
            leader_id,
            SETTINGS,
            quota=no_quota(),
            broker_epoch=lambda: self.epoch,
            monotonic_s=self.clock.seconds,
            now_ms=self._now_ms,
        )
        return FetcherLoop(leader_id, fetcher, lambda: _Link(self, leader_id), self.clock, timeout_s=2.0, backoff_s=0.2)


def _received(response: Any, request: type[Request], version: int) -> Any:
    """The response as the client has it: records are bytes."""
    response = message(response, request, version)
    if request is FetchRequest:
        for topic in response.responses:
            for data in topic.partitions:
                if not isinstance(data.records, bytes | memoryview | None):
                    data.records = data.records.read()
    return response


class _Link:
    """A fetcher's connection."""

    def __init__(self, process: Process, leader_id: int) -> None:
        self._process = process
        self._leader_id = leader_id

    def connect(self) -> Deferred[None]:
        return succeed(None)

    def version_of(self, request: type[Request]) -> int | None:
        return VERSIONS[request]

    def send(self, request: Request, *, timeout_s: float | None = None, version_max: int | None = None) -> Deferred[Any]:
        group = self._process.group
        leader = group.processes.get(self._leader_id)
        if leader is None:
            return fail(Lost("connection refused"))
        return group.between(self._process, leader, lambda: leader.serve(request), timeout_s or 2.0)

    def close(self) -> None:
        pass


class BrokerGroup:
    """The brokers. `controller` has yet to be set by the model of the controller.

    `cut`: brokers without a network to other brokers; `deaf`: brokers without one to the controller. Clients reach all of them.
    """

    alter_partition: Callable[[Any], Any]

    def __init__(self, seed: int, broker_ids: range, *, loss: float = 0.0, config: GroupConfig | None = None, **log_config: Any) -> None:
        self._randoms = {name: Random(f"{seed} {name}") for name in ("network", "disk", "loss")}
        self.loss = loss
        self.reactor = FakeReactor()
        self.numbers = iter(range(1, 10**9))
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.log_config = {"min_insync_replicas": 2, "segment_bytes": 10_000} | log_config
        self.problems: list[str] = []
        self.cut: set[int] = set()
        self.deaf: set[int] = set()
        self._disks = {broker_id: MemoryDisk() for broker_id in broker_ids}
        self._epochs = iter(range(100, 10**9))
        self.processes: dict[int, Process] = {}

    def failed(self, why: str) -> None:
        self.problems.append(why)

    def start(self, broker_id: int) -> Process:
        disk = self._disks[broker_id] = self._disks[broker_id].other_process()
        process = self.processes[broker_id] = Process(self, broker_id, disk, next(self._epochs))
        return process

    def new_epoch(self, process: Process) -> None:
        """A broker that lost its session registers again."""
        process.epoch = next(self._epochs)
        process.isr_requests.broker_epoch = process.epoch

    def kill(self, broker_id: int) -> None:
        self.processes.pop(broker_id).kill()
        self._disks[broker_id].end_process()

    def delay_s(self, what: str) -> float:
        return self._randoms[what].choice((0.0, 0.001, 0.01, 0.05))

    def between(self, sender: Process, receiver: Process | None, serve: Callable[[], Deferred[Any]], timeout_s: float) -> Deferred[Any]:
        """A request of one broker to another (None: to the controller), and its response."""

        def connected() -> bool:
            if receiver is None:
                return sender.id not in self.deaf
            return receiver.clock.running and not {sender.id, receiver.id} & self.cut

        return self._exchange(sender.clock.callLater, serve, connected, timeout_s)

    def call(self, broker_id: int, request: Request, answered: Callable[[Process], None] = lambda process: None) -> Deferred[Any]:
        """A client's request; fails with Lost. `answered` is called when the broker responds, before the response is on its way."""
        process = self.processes.get(broker_id)
        if process is None:
            return fail(Lost(f"broker {broker_id} does not run"))

        def serve() -> Deferred[Any]:
            def responds(response: Any) -> Any:
                answered(process)
                return response

            return process.serve(request).addCallback(responds)

        done = self._exchange(self.reactor.callLater, serve, lambda: process.clock.running, CLIENT_TIMEOUT_S)
        process.waiting[done] = None

        def ended(result: Any) -> Any:
            process.waiting.pop(done, None)
            return result

        return done.addBoth(ended)

    def _exchange(
        self, call_later: Callable[..., Any], serve: Callable[[], Deferred[Any]], connected: Callable[[], bool], timeout_s: float
    ) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def expired() -> None:
            if not done.called:
                done.errback(Lost("timeout"))

        def answered(response: Any) -> None:
            if timer.active() and not done.called and connected():
                timer.cancel()
                done.callback(response)

        def arrived() -> None:
            if connected() and not done.called:
                answer = serve()
                if not self._is_lost():
                    answer.addCallback(lambda response: call_later(self.delay_s("network"), answered, response))
                answer.addErrback(lambda failure: self.failed(failure.getTraceback()))

        timer = call_later(timeout_s, expired)
        if not self._is_lost():
            call_later(self.delay_s("network"), arrived)
        return done

    def _is_lost(self) -> bool:
        return self._randoms["loss"].random() < self.loss

    def sleep(self, seconds: float) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.reactor.callLater(seconds, done.callback, None)
        return done


def partition_of(group_id: str, count: int) -> int:
    """The partition of a group."""
    return coordinator_partition(group_id, count)
