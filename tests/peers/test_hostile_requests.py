"""Random and corrupted inter-broker requests through the handlers: each has a valid response or a closed connection, and no traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from simulation.memory_disk import MemoryDisk
from tests.api.responses import joined
from tests.cluster.brokers import FakeCluster
from tests.cluster.test_replicas import ReplicasHarness
from tests.fuzz import frames
from tests.fuzz.frames import Served
from tests.log_directories.support import NOW
from tests.peers.network import Configs
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from txbroker.api.controller_requests import ELEMENTS_MAX, UpdateMetadataHandler
from txbroker.api.elect_leaders import ElectLeadersHandler
from txbroker.api.partition_reassignments import AlterPartitionReassignmentsHandler, ListPartitionReassignmentsHandler
from txbroker.api.registry import Registry
from txbroker.api.request_context import Session
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.broker.cluster_handlers import register_for_cluster
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.own_broker import OwnBroker
from txbroker.cluster.producer_ids import allocate_block
from txbroker.connection.protocol import Connection
from txbroker.errors import ProtocolError
from txbroker.names import parse_partition_directory
from txbroker.purgatory import Purgatory
from txbroker.wire.codec import decode, decoder, encode_bytes
from txbroker.wire.fieldkinds import resolve
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataTopicState
from txbroker.wire.schema import Struct

TIMEOUT_S_MAX = 2**31 / 1000  # what a request can ask for


class Target:
    """A broker that is also the controller of a cluster of three, and what it logs."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.disk = MemoryDisk()
        self.replicas = ReplicasHarness(DiskPath(self.disk, "/data").made())
        self.image = ClusterImage()
        self.cluster = FakeCluster()
        self.cluster.start(1, 2, 3)
        self.cluster.create_topic("known", (1, 2, 3), (2, 3, 1))
        configs: Any = Configs()
        own = OwnBroker(
            self.replicas.replicas, self.image, configs, lambda: NOW, lambda changes: None, self.clock, lambda: 1, lambda: None
        )
        self.registry = Registry()
        tree = self.cluster.observer
        image = self.cluster.brokers[1].image
        waiting = TopicWaiting(image, Purgatory(self.clock, "topics"), lambda name: False)
        register_for_cluster(self.registry, own, lambda: self.cluster.controller, lambda broker: allocate_block(tree, broker))
        self.registry.register(ElectLeadersHandler(lambda: self.cluster.controller, image, waiting))
        self.registry.register(AlterPartitionReassignmentsHandler(lambda: self.cluster.controller))
        self.registry.register(ListPartitionReassignmentsHandler(lambda: self.cluster.controller))
        self.served = Served(self.registry, self.registry.requests())

    def send(self, received: bytes) -> tuple[bytes, bool]:
        """The response to a frame, and whether the connection was closed."""
        # Else the first request with a high epoch would have all others refused.
        self.replicas.replicas.controller_epoch = self.image.controller_epoch = 0
        closed: list[bool] = []
        session = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener="PLAINTEXT", number=0)
        connection = Connection(self.registry)
        transport: Any = SimpleNamespace(
            session=session, disconnecting=False, flush=lambda: None, loseConnection=lambda: closed.append(True)
        )
        connection.makeConnection(transport)
        if len(received) >= 12:
            connection.frame_received(memoryview(bytearray(received[4:])))
        self._turn()
        if connection.in_flight and not closed:
            self.clock.advance(TIMEOUT_S_MAX)  # an election waits for a leader, which a reassignment may change again
            self._turn()
        output = joined(connection.take_output())
        assert closed or output or len(received) < 12, "neither answered nor closed"
        return output, bool(closed)

    def _turn(self) -> None:
        for _ in range(50):
            self.clock.advance(0)
            self.cluster.turns.run()

    def check(self) -> None:
        """Nothing outside of the log directories, no odd name in them, and a controller that still serves."""
        for place in self.disk.names("/data"):
            for name in self.disk.names(f"/data/{place}"):
                if self.disk.is_directory(f"/data/{place}/{name}"):
                    assert parse_partition_directory(name.split(".")[0]) is not None or "-delete" in name, name
        assert self.cluster.controller.active
        for partition in (0, 1):
            state = self.cluster.state("known", partition)
            assert state.isr and set(state.isr) <= {1, 2, 3} and len(set(state.isr)) == len(state.isr)
            assert state.leader in (-1, *state.isr)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    logger = logging.getLogger("txbroker")
    problems: list[str] = []

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info or "internal error" in record.getMessage():
                problems.append(record.getMessage())

    watch = Watch()
    logger.addHandler(watch)
    made = Target()
    yield made
    logger.removeHandler(watch)
    made.check()
    assert problems == []


def check_response(output: bytes, cls: Any, version: int) -> None:
    if output:
        size = int.from_bytes(output[:4], "big")
        assert len(output) == size + 4
        decode(frames.readable_answer(cls), version, output[9 if version in cls.flexible else 8 :])


PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "broker_epoch": (1,), "controller_epoch": (1, 1, 2), "controller_id": (1,), "broker_id": (1, 2, 3), "is_k_raft_controller": (False,),
    "topic_name": ("known", "a", "a", "b"), "partition_index": (0, 1), "leader": (1, 1, 2, -1), "leader_epoch": (0, 1, 2),
    "partition_epoch": (0, 1, 2), "zk_version": (0, 1), "isr": ([1], [1, 2], [2]), "replicas": ([1, 2], [1, 2, 3], [2, 1]),
    "offline_replicas": ([], [2]), "new_isr": ([1], [1, 2]), "id": (1, 2), "port": (9092,), "leader_recovery_state": (0, 0, 1),
}  # fmt: skip


def made(target: Target, which: int, pick: frames.Pick) -> tuple[Any, int, bytes]:
    """A request, most of whose values could be those of a cluster."""
    cls, version = target.served.pairs[which % len(target.served.pairs)]
    request: Any = frames.make(cls, version, pick)
    structs = [request]
    while structs:
        struct = structs.pop()
        for name in struct.__annotations__:
            value = getattr(struct, name)
            if isinstance(value, list) and value and isinstance(value[0], Struct):
                structs += value
            elif name in PLAUSIBLE and pick(20) and encodable(struct, name, version):
                setattr(struct, name, frames.one_of(pick, PLAUSIBLE[name]))
    if "broker_id" in request.__annotations__ and pick(4):
        request.broker_epoch = target.cluster.brokers[request.broker_id].epoch if request.broker_id in (1, 2, 3) else 1
        for topic in getattr(request, "topics", ()):
            topic.topic_id = target.cluster.brokers[1].image.topics["known"].topic_id if version >= 2 else bytes(16)
    body = encode_bytes(request, version)
    return cls, version, request_prefix(cls, version, 7, "fuzz", len(body)) + body


def encodable(struct: Struct, name: str, version: int) -> bool:
    return any(field.name == name and field.carried(version) for field in resolve(type(struct)))


@settings(max_examples=examples(400))
@given(st.integers(0, 1 << 16), st.integers(0, 1 << 30))
def test_random_requests(target: Target, which: int, seed: int) -> None:
    cls, version, frame = made(target, which, Random(seed).randrange)
    check_response(target.send(frame)[0], cls, version)
    target.check()


@settings(max_examples=examples(300))
@given(st.integers(0, 1 << 16), st.integers(0, 1 << 30))
def test_corrupted_frames(target: Target, which: int, seed: int) -> None:
    pick = Random(seed).randrange
    target.send(frames.mutated_frame(made(target, which, pick)[2], pick))
    target.check()


def test_every_api_and_version(target: Target) -> None:
    pick = Random(1).randrange
    served = set()
    for which in range(20 * len(target.served.pairs)):
        cls, version, frame = made(target, which, pick)
        output, _ = target.send(frame)
        check_response(output, cls, version)
        answer = decode(frames.readable_answer(cls), version, output[9 if version in cls.flexible else 8 :]) if output else None
        if answer is not None and answer.error_code == 0:
            served.add((cls, version))
    assert len(served) > len(target.served.pairs) * 3 / 4, "most requests are refused: the test shows nothing"


def metadata_of(partitions: int) -> bytes:
    states = [
        UpdateMetadataPartitionState(partition_index=index, controller_epoch=1, leader=1, leader_epoch=0, isr=[1, 2, 3], zk_version=0,
                                     replicas=[1, 2, 3])
        for index in range(partitions)
    ]  # fmt: skip
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=bytes(15) + b"t", partition_states=states)
    request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_brokers=[])
    return encode_bytes(request, 8)


def test_the_state_of_a_hundred_thousand_partitions_fits_into_a_request_and_not_much_more() -> None:
    registry = Registry([UpdateMetadataHandler(OwnBroker.__new__(OwnBroker))])
    route = registry.routes[6 << 16 | 8]
    body = metadata_of(100_000)
    read: Any = route.decode(memoryview(body))
    assert len(read.topic_states[0].partition_states) == 100_000
    with pytest.raises(ProtocolError):
        decoder(UpdateMetadataRequest, 8)(memoryview(body))
    with pytest.raises(ProtocolError):
        route.decode(memoryview(metadata_of(ELEMENTS_MAX // 7 + 1)))
