"""Encoding and decoding of the data in the metadata tree's nodes: Kafka's JSON, as in ZooKeeper mode.

Compact JSON with Kafka's order of keys. A node may have been written by another broker or by an operator: unknown keys are ignored,
any other unexpected content raises `MalformedNode`. So do values that no request can have: one node must not make requests about all
others impossible.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from txbroker.cluster.node_paths import Entity
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import NULL_TOPIC_ID, TopicPartition, id_from_text, id_to_text

P = ParamSpec("P")
T = TypeVar("T")
NO_LEADER = -1
INT32_MAX = 2**31 - 1
PORT_MAX = 65535


class MalformedNode(Exception):
    """The data of a node is not valid."""


def to_json(value: Mapping[str, Any]) -> bytes:
    """Compact JSON in the order of the keys."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _decoder(what: str) -> Callable[[Callable[Concatenate[dict[str, Any], P], T]], Callable[Concatenate[bytes | None, P], T]]:
    """Pass a JSON object to the decorated function; missing keys and values of the wrong type raise MalformedNode."""

    def decorate(function: Callable[Concatenate[dict[str, Any], P], T]) -> Callable[Concatenate[bytes | None, P], T]:
        @wraps(function)
        def decode(data: bytes | None, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                value = json.loads(data or b"")
                if not isinstance(value, dict):
                    raise ValueError("not an object")
                return function(value, *args, **kwargs)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise MalformedNode(f"{data[:200] if data else data!r} is not a valid {what}: {type(error).__name__} {error}") from error

        return decode

    return decorate


def _ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(item) is not int or not 0 <= item <= INT32_MAX for item in value):
        raise ValueError(f"{value!r} is not a list of broker ids")
    if len(set(value)) != len(value):
        raise ValueError(f"{value!r} has a broker twice")
    return tuple(value)


def _number(value: Any, least: int = 0, most: int = INT32_MAX) -> int:
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{number} is not between {least} and {most}")
    return number


def is_int32(name: str) -> bool:
    """Whether the name of a node is a number that requests can have, such as a broker's id."""
    return name.isascii() and name.isdecimal() and len(name) <= len(str(INT32_MAX)) and int(name) <= INT32_MAX


def _replicas(value: Any) -> tuple[int, ...]:
    if value == []:
        raise ValueError("a partition has no replicas")
    return _ids(value)


def encode_cluster_id(cluster_id: str) -> bytes:
    """`/cluster/id`."""
    return to_json({"version": "1", "id": cluster_id})


@_decoder("cluster id")
def decode_cluster_id(value: dict[str, Any]) -> str:
    """`/cluster/id`."""
    if not isinstance(value["id"], str):
        raise ValueError("the id is not a string")
    return value["id"]


@lazy_dataclass(frozen=True, slots=True)
class RegisteredEndpoint:
    """One advertised listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


TRANSACTION_VERSION = 2  # of this broker: KIP-890
_TRANSACTION_FEATURE = "transaction.version"


@lazy_dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """`/brokers/ids/N`: the registration of a live broker. `transaction_version`: the highest that it serves, 0 without the feature."""

    endpoints: tuple[RegisteredEndpoint, ...]
    rack: str | None = None
    transaction_version: int = 0

    def encode(self, timestamp_ms: int) -> bytes:
        """The separate host and port are for old clients: those of the first PLAINTEXT endpoint."""
        plain = next((e for e in self.endpoints if e.security_protocol == "PLAINTEXT"), None)
        # Brokers of Kafka before 3.9 do not read a registration with a minimum of 0.
        version = {"min_version": 1, "max_version": self.transaction_version}
        value: dict[str, Any] = {
            "features": {_TRANSACTION_FEATURE: version} if self.transaction_version else {},
            "listener_security_protocol_map": {e.listener: e.security_protocol for e in self.endpoints},
            "endpoints": [str(e) for e in self.endpoints],
        }
        if self.rack is not None:
            value["rack"] = self.rack
        value |= {
            "jmx_port": -1,
            "port": -1 if plain is None else plain.port,
            "host": None if plain is None else plain.host,
            "version": 5,
            "timestamp": str(timestamp_ms),
        }
        return to_json(value)


@_decoder("broker registration")
def decode_broker(value: dict[str, Any]) -> BrokerRegistration:
    """`/brokers/ids/N`, version 2 and later (brokers of 0.9 and later)."""
    protocols = value.get("listener_security_protocol_map") or {}
    endpoints = tuple(_endpoint(text, protocols) for text in value["endpoints"])
    rack = value.get("rack")
    if not isinstance(rack, str | None):
        raise ValueError("the rack is not a string")
    feature = (value.get("features") or {}).get(_TRANSACTION_FEATURE) or {}
    return BrokerRegistration(endpoints, rack, int(feature.get("max_version", 0)))


def _endpoint(text: str, protocols: Mapping[str, str]) -> RegisteredEndpoint:
    listener, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon:
        raise ValueError(f"{text!r} is not an endpoint")
    # Up to version 3 the name of a listener is its security protocol.
    return RegisteredEndpoint(listener, host.strip("[]"), _number(port, most=PORT_MAX), protocols.get(listener, listener))


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """`/controller`."""
    return to_json({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def encode_controller_epoch(epoch: int) -> bytes:
    """`/controller_epoch`, which is plain text, not JSON."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes | None) -> int:
    """`/controller_epoch`."""
    try:
        return _number(data or b"")
    except ValueError as error:
        raise MalformedNode(f"{data!r} is not a controller epoch") from error


# `/feature` of a cluster without finalized features; status 1 is "enabled" (KIP-584).
FEATURES = to_json({"features": {}, "version": 2, "status": 1})


@lazy_dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of a partition, preferred leader first, and those that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment of the partition is in progress."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def reassigned_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """With a reassignment from the origin to these replicas, which replaces one in progress (Kafka's `reassignTo`)."""
        origin = self.origin
        return ReplicaAssignment(
            tuple(dict.fromkeys([*target, *origin])),
            adding=tuple(replica for replica in target if replica not in origin),
            removing=tuple(replica for replica in origin if replica not in target),
        )


@lazy_dataclass(frozen=True, slots=True)
class TopicAssignment:
    """`/brokers/topics/T`: a topic's id and the replicas of each partition."""

    topic_id: bytes  # NULL_TOPIC_ID: the topic has none
    partitions: Mapping[int, ReplicaAssignment]
    other: Mapping[str, Any] = field(default_factory=dict)  # keys of other implementations, which are kept

    def encode(self) -> bytes:
        """Version 3."""
        in_order = sorted(self.partitions.items())
        value: dict[str, Any] = {"partitions": {str(partition): list(a.replicas) for partition, a in in_order}}
        if self.topic_id != NULL_TOPIC_ID:
            value["topic_id"] = id_to_text(self.topic_id)
        value["adding_replicas"] = {str(partition): list(a.adding) for partition, a in in_order if a.adding}
        value["removing_replicas"] = {str(partition): list(a.removing) for partition, a in in_order if a.removing}
        return to_json({**value, "version": 3, **self.other})

    def with_partitions(self, partitions: Mapping[int, ReplicaAssignment]) -> TopicAssignment:
        """With other replicas of these partitions, which may be new."""
        return replace(self, partitions={**self.partitions, **partitions})


_TOPIC_KEYS = frozenset({"partitions", "topic_id", "adding_replicas", "removing_replicas", "version"})


@_decoder("topic")
def decode_topic(value: dict[str, Any]) -> TopicAssignment:
    """`/brokers/topics/T`, versions 1 (Kafka before 2.4) to 3; no topic id (before 2.8) is the null id."""
    topic_id = id_from_text(value["topic_id"]) if "topic_id" in value else NULL_TOPIC_ID
    adding, removing = value.get("adding_replicas", {}), value.get("removing_replicas", {})
    return TopicAssignment(
        topic_id,
        {
            _number(partition): ReplicaAssignment(_replicas(replicas), _ids(adding.get(partition, [])), _ids(removing.get(partition, [])))
            for partition, replicas in value["partitions"].items()
        },
        {key: other for key, other in value.items() if key not in _TOPIC_KEYS},
    )


@lazy_dataclass(frozen=True, slots=True)
class PartitionState:
    """`/brokers/topics/T/partitions/P/state`: leader, leader epoch and ISR of a partition (Kafka's LeaderAndIsr)."""

    leader: int  # NO_LEADER: none
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False  # the leader was elected outside of the ISR and has not reported its recovery yet (KIP-704)
    partition_epoch: int = 0  # the node's version, not part of its data

    def encode(self, isr_epochs: Sequence[int] = ()) -> bytes:
        """Without the partition epoch. `isr_epochs`: the broker epochs of the ISR, which Apache Kafka neither writes nor reads."""
        value: dict[str, Any] = {"controller_epoch": self.controller_epoch, "leader": self.leader, "version": 1}
        if self.recovering:
            value["leader_recovery_state"] = 1
        value |= {"leader_epoch": self.leader_epoch, "isr": list(self.isr)}
        if isr_epochs:
            value[_ISR_EPOCHS] = list(isr_epochs)
        return to_json(value)


_ISR_EPOCHS = "txbroker_isr_epochs"


@_decoder("partition state")
def decode_state(value: dict[str, Any], partition_epoch: int) -> PartitionState:
    """A partition's state; `partition_epoch` is the version of the node."""
    return _state(value, partition_epoch)


@_decoder("partition state")
def decode_state_and_epochs(value: dict[str, Any], partition_epoch: int) -> tuple[PartitionState, tuple[int, ...]]:
    """The same, and the broker epochs of its ISR, in the order of the ISR; empty if they were not written, or were not changed with it."""
    state = _state(value, partition_epoch)
    epochs = tuple(value.get(_ISR_EPOCHS, ()))
    if any(type(epoch) is not int for epoch in epochs):
        raise ValueError(f"{epochs} are not broker epochs")
    return state, epochs if len(epochs) == len(state.isr) else ()  # an operator has changed the ISR


def _state(value: dict[str, Any], partition_epoch: int) -> PartitionState:
    return PartitionState(
        leader=_number(value["leader"], least=NO_LEADER),
        leader_epoch=_number(value["leader_epoch"]),
        isr=_ids(value["isr"]),
        controller_epoch=_number(value["controller_epoch"]),
        recovering=value.get("leader_recovery_state", 0) == 1,
        partition_epoch=partition_epoch,
    )


def encode_config(properties: Mapping[str, str]) -> bytes:
    """`/config/<type>/<name>`."""
    return to_json({"version": 1, "config": dict(properties)})


@_decoder("configuration")
def decode_config(value: dict[str, Any]) -> dict[str, str]:
    """`/config/<type>/<name>`."""
    return {str(name): str(text) for name, text in value.get("config", {}).items()}


def encode_config_change(entity: Entity) -> bytes:
    """`/config/changes/config_change_N`."""
    return to_json({"version": 2, "entity_path": entity.entity_path})


@_decoder("config change")
def decode_config_change(value: dict[str, Any]) -> Entity:
    """`/config/changes/config_change_N`, version 2 (paths) and 1 (before 0.10: type and name)."""
    if "entity_path" not in value:
        return Entity(value["entity_type"], value["entity_name"])
    entity_type, slash, name = value["entity_path"].partition("/")
    if not slash:
        raise ValueError("the path has no name")
    return Entity(entity_type, name)


@lazy_dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """`/latest_producer_id_block`: the producer ids `start` to `end`, both inclusive, that one broker assigns."""

    broker_id: int
    start: int
    end: int

    def encode(self) -> bytes:
        """Numbers are strings, as in Kafka, because they are longs."""
        return to_json({"version": 1, "broker": self.broker_id, "block_start": str(self.start), "block_end": str(self.end)})


@_decoder("block of producer ids")
def decode_producer_id_block(value: dict[str, Any]) -> ProducerIdBlock:
    """`/latest_producer_id_block`."""
    return ProducerIdBlock(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))


@_decoder("log directory event")
def decode_log_dir_event(value: dict[str, Any]) -> int:
    """`/log_dir_event_notification/log_dir_event_N`: the broker that lost a log directory."""
    return int(value["broker"])


def encode_log_dir_event(broker_id: int) -> bytes:
    """`/log_dir_event_notification/log_dir_event_N`; event 1 is the failure of a log directory."""
    return to_json({"version": 1, "broker": broker_id, "event": 1})


@_decoder("reassignment")
def decode_reassignments(value: dict[str, Any]) -> dict[TopicPartition, tuple[int, ...]]:
    """`/admin/reassign_partitions`: the target replicas of partitions, as tools older than Kafka 2.4 request them."""
    return {_partition(item): _ids(item["replicas"]) for item in value["partitions"]}


def encode_reassignments(wanted: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """`/admin/reassign_partitions`."""
    partitions = [{"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)} for tp, replicas in wanted.items()]
    return to_json({"version": 1, "partitions": partitions})


@_decoder("list of partitions")
def decode_partitions(value: dict[str, Any]) -> list[TopicPartition]:
    """`/admin/preferred_replica_election`, and `/isr_change_notification/isr_change_N` of brokers older than Kafka 2.7."""
    return [_partition(item) for item in value["partitions"]]


def _partition(value: Any) -> TopicPartition:
    topic, partition = value["topic"], value["partition"]
    if not isinstance(topic, str) or type(partition) is not int:
        raise ValueError(f"{value!r} does not name a partition")
    return TopicPartition(topic, partition)
