"""One broker with several partitions: real log directories, replicas, events, purgatories and handlers; requests of clients and replicas.

Nothing happens by itself: a test gives the roles, sends requests, and ends the turns of the reactor. What waits is answered at the end of
the turn in which its partition moves, or when the clock is advanced.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from simulation.memory_disk import MemoryDisk
from tests.api.lone_broker import no_client_quotas
from tests.api.responses import later, message
from tests.log.support import NOW, batch
from tests.log_directories.support import TOPIC_ID, DirectoryHarness
from tests.support.fakes.disk_path import DiskPath
from txbroker.action_queue import ActionQueue
from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.delete_records import DeleteRecordsHandler
from txbroker.api.endpoints import Endpoints
from txbroker.api.fetch import FetchHandler
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.list_offsets import ListOffsetsHandler
from txbroker.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from txbroker.api.produce import ProduceHandler
from txbroker.api.read_replica import RACK_AWARE_SELECTOR
from txbroker.api.request_context import RequestContext, Session
from txbroker.broker.event_wiring import EventWiring
from txbroker.cluster.followers import UNKNOWN_EPOCH, IsrProposal
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.own_broker import OwnBroker
from txbroker.cluster.partition import Partition
from txbroker.cluster.replica_fetcher import ReplicaFetcher
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.transactions.verification import TransactionVerifier
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.messages.delete_records import DeleteRecordsRequest
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData, ReplicaState
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from txbroker.wire.messages.list_offsets import ListOffsetsRequest
from txbroker.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from txbroker.wire.schema import Request

OWN, OTHER, THIRD = BROKERS = (1, 2, 3)
TOPIC = "t"
LAG_S = 10.0
WAIT_MS = 500
VERSION = 17  # of Fetch


class IsrRequests:
    """Receives the proposals of leaders."""

    def __init__(self) -> None:
        self.proposed: list[tuple[Partition, IsrProposal]] = []

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self.proposed.append((partition, proposal))


class Fetchers:
    """Receives the partitions that are to be copied, for a test's fetcher."""

    fetcher: ReplicaFetcher | None = None

    def follow(self, partition: Partition) -> None: ...

    def forget(self, topic_partition: object) -> None: ...

    def moved(self, topic_partition: TopicPartition) -> None:
        if self.fetcher is not None:
            self.fetcher.touch(topic_partition)


class ReplicaHost:
    """A broker. `alive`: the brokers in its image, with their racks. `throttled` and `rate_max`: of what it sends to followers.

    `coordinators`: of transactions.
    """

    def __init__(self, partitions: int = 1, broker_id: int = OWN, coordinators: Any = None, **config: Any) -> None:
        self.clock = Clock()
        self.verifies = True
        self.verifier = TransactionVerifier(coordinators, self.clock, lambda: self.verifies)
        self.rate_max, self.throttled = 0, frozenset[str]()
        disk = self.disk = DirectoryHarness(DiskPath(MemoryDisk(), "/data").made(), **config)
        disk.start()
        self.image = ClusterImage()
        self.actions = ActionQueue(lambda delay_s, call: None)
        self.purgatories = {name: Purgatory(self.clock, name) for name in ("produce", "fetch", "delete records")}
        wiring = EventWiring(self.actions, *self.purgatories.values(), directory_lost=lambda: None, fatal=lambda reason: None)
        self.replicas = Replicas(broker_id, disk.directories, self.image, wiring, self.clock.seconds, lambda: LAG_S)
        self.isr_requests = IsrRequests()
        self.sessions = FetchSessions(10, count(1).__next__)
        unused: Any = None
        self.fetchers = Fetchers()
        fetchers: Any = self.fetchers
        isr_requests: Any = self.isr_requests
        wiring.wire(self.replicas, unused, unused, self.sessions, isr_requests, fetchers)
        disk.directories.wire(wiring)
        leaders = CurrentLeaders(self.replicas, self.image, Endpoints(broker_id, self.image, []))
        fetches = FetchHandler(
            self.replicas,
            self.image,
            self.sessions,
            self.purgatories["fetch"],
            self.clock.seconds,
            leaders=leaders,
            quota=ReplicationQuota(
                lambda: self.rate_max, lambda config: self.throttled, self.clock.seconds, sample_count=11, sample_s=1
            ),
            client_quotas=no_client_quotas(),
            fetch_max_bytes=1 << 20,
            replica_selector=RACK_AWARE_SELECTOR,
        )
        self.fetches = fetches
        produces = ProduceHandler(self.replicas, leaders, self.purgatories["produce"], self.verifier, lambda: NOW, self.clock.seconds)
        self.handlers: dict[type[Request], Any] = {
            FetchRequest: fetches, DeleteRecordsRequest: DeleteRecordsHandler(self.replicas, self.purgatories["delete records"]),
            OffsetForLeaderEpochRequest: OffsetForLeaderEpochHandler(self.replicas),
            ProduceRequest: produces, ListOffsetsRequest: ListOffsetsHandler(self.replicas),
        }  # fmt: skip
        self.own = OwnBroker(
            self.replicas, self.image, unused, lambda: NOW, lambda changes: None, self.clock, lambda: UNKNOWN_EPOCH, lambda: None
        )
        self._partition_epochs = count()
        self.partitions = partitions
        self.alive: dict[int, str | None] = dict.fromkeys(BROKERS)
        self.roles()

    def roles(
        self,
        *,
        leader: int = OWN,
        epoch: int = 0,
        isr: tuple[int, ...] = BROKERS,
        only: tuple[int, ...] | None = None,
        topic: str = TOPIC,
        topic_id: bytes = TOPIC_ID,
        metadata: bool = True,
    ) -> list[ErrorCode]:
        """The controller's LeaderAndIsr for all partitions, or for some, and its UpdateMetadata; the error codes."""
        indexes = range(self.partitions) if only is None else only
        version = next(self._partition_epochs)
        states = [
            LeaderAndIsrPartitionState(partition_index=index, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=list(isr),
                                       partition_epoch=version, replicas=list(BROKERS), is_new=True)
            for index in indexes
        ]  # fmt: skip
        led = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
        request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[led], live_leaders=[])
        answered = self.replicas.leader_and_isr(request, NOW)
        known = [
            UpdateMetadataPartitionState(partition_index=index, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=list(isr),
                                         zk_version=version, replicas=list(BROKERS), offline_replicas=[])
            for index in indexes
        ]  # fmt: skip
        if metadata:
            self.update_metadata(UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=known))
        self.end_turn()
        return [ErrorCode(one.error_code) for topic_errors in answered.topics for one in topic_errors.partition_errors]

    def update_metadata(self, *topics: UpdateMetadataTopicState) -> None:
        """Apply the live brokers, and topics."""
        live = [
            UpdateMetadataBroker(id=broker, rack=rack, endpoints=[
                UpdateMetadataEndpoint(host=f"b{broker}", port=9092, listener="PLAINTEXT", security_protocol=0)])
            for broker, rack in self.alive.items()
        ]  # fmt: skip
        request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=live, topic_states=list(topics))
        self.own.send(request).addErrback(lambda failure: failure.raiseException())
        self.end_turn()

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.get(TOPIC, index)

    def end_turn(self) -> None:
        """Complete what waits for the partitions that have moved."""
        self.actions.end_turn()

    def send(self, request: Any, version: int, seen: Callable[[Any], Any] = lambda response: response) -> list[Any]:
        """Send a request by way of its encoding; the list has what was `seen` of the response once there is one."""
        kind = type(request)
        received = decode(kind, version, memoryview(bytearray(encode_bytes(request, version))))
        session = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener="PLAINTEXT", number=0)
        answer = later(self.handlers[kind](received, RequestContext(request.api_key, version, 1, None, session)))
        answered: list[Any] = []
        waiting = answer if isinstance(answer, Deferred) else succeed(answer)
        waiting.addCallback(lambda response: answered.append(seen(message(response, kind, version))))
        self.end_turn()
        return answered

    def produce(self, *values: bytes, index: int = 0, acks: int = -1, timeout_ms: int = 30_000) -> list[Any]:
        """Produce one batch; the list has the answer for its partition once there is one."""
        data = PartitionProduceData(index=index, records=bytes(batch(*values)))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
        return self.send(request, 9, lambda response: response.responses[0].partition_responses[0])

    def append(self, *indexes: int) -> None:
        """Append a record to each of these partitions, in one turn."""
        for index in indexes:
            self.partition(index).append(batch(b"v"), NOW)
        self.end_turn()


class Fetching:
    """A replica, or a consumer (-1), with a fetch session."""

    def __init__(self, host: ReplicaHost, replica: int, *, broker_epoch: int = -1, version: int = VERSION, rack: str = "") -> None:
        self.host = host
        self.replica = replica
        self.broker_epoch = broker_epoch
        self.version = version
        self.rack = rack
        self.session_id = self.session_epoch = 0

    def fetch(
        self, offsets: dict[int, int] | None = None, *, wait: bool = False, epoch: int = -1, log_start: int = 0, last_epoch: int = -1,
        forget: tuple[int, ...] = (), bytes_max: int = 1 << 20, min_bytes: int = 1, session: bool = True,
    ) -> list[dict[int, PartitionData]]:  # fmt: skip
        """Fetch these partitions, and all others of the session. The list has the response, by partition, once there is one."""
        by_id = self.version >= 13
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, current_leader_epoch=epoch, log_start_offset=log_start,
                           last_fetched_epoch=last_epoch, partition_max_bytes=bytes_max)
            for index, offset in (offsets or {}).items()
        ]  # fmt: skip
        named: Any = {"topic_id": TOPIC_ID} if by_id else {"topic": TOPIC}
        new = self.version >= 15
        request = FetchRequest(
            replica_id=-1 if new else self.replica,
            replica_state=ReplicaState(replica_id=self.replica, replica_epoch=self.broker_epoch) if new else ReplicaState(),
            max_wait_ms=WAIT_MS if wait else 0,
            min_bytes=min_bytes,
            max_bytes=bytes_max,
            session_id=self.session_id,
            session_epoch=self.session_epoch if session else -1,
            topics=[FetchTopic(partitions=wanted, **named)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(partitions=list(forget), **named)] if forget else [],
            rack_id=self.rack,
        )
        return self.host.send(request, self.version, self._seen)

    def _seen(self, response: Any) -> dict[int, PartitionData]:
        assert response.error_code == 0, ErrorCode(response.error_code)
        self.session_id, self.session_epoch = response.session_id, self.session_epoch + 1 if response.session_id else 0
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}
