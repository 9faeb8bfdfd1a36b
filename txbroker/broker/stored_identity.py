"""What the metadata of a broker alone says of its id, when meta.properties does not say it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from txbroker.cluster.node_data import decode_topic
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError
from txbroker.log import meta_properties
from txbroker.log.meta_properties import Identity
from txbroker.names import TopicPartition


def replicas_by_broker(topics: Mapping[str, bytes | None]) -> dict[int, list[TopicPartition]]:
    """The replicas of each broker. `topics`: the data of the topics' nodes by name. MalformedNode."""
    found: dict[int, list[TopicPartition]] = defaultdict(list)
    for name, data in topics.items():
        for number, assigned in decode_topic(data).partitions.items():
            for broker in assigned.replicas:
                found[broker].append(TopicPartition(name, number))
    return found


def is_incomplete(stored: Identity) -> bool:
    """Whether meta.properties is missing, empty or cut off, so that the metadata must confirm the broker id."""
    return None in stored


def check_replicas(config: BrokerConfig, directories: Sequence[str], stored: Identity, topics: Mapping[str, bytes | None]) -> None:
    """StartError if all replicas in the metadata are on other brokers than this one: no partition would have a leader.

    Kafka would start such a broker with a new id. MalformedNode.
    """
    broker_id = config.int("broker.id")
    if broker_id < 0 and stored.broker_id is not None:
        broker_id = stored.broker_id
    on_brokers = replicas_by_broker(topics)
    if not on_brokers or broker_id in on_brokers:
        return
    wanted, partitions = max(on_brokers.items(), key=lambda each: len(each[1]))
    file = f"{directories[0]}/{meta_properties.FILE_NAME}"
    where = ", ".join(directories)
    ours = "has no broker id" if broker_id < 0 else f"does not confirm broker id {broker_id}"
    generated = wanted > config.int("reserved.broker.max.id") and config.boolean("broker.id.generation.enable")
    remedy = f"write the lines version=0 and broker.id={wanted} into {file}" if generated else f"set broker.id={wanted}"
    raise StartError(
        f"{meta_properties.FILE_NAME} {ours} (it is missing, empty or damaged in {where}), and the metadata has replicas on broker "
        f"{wanted}, such as {partitions[0]}: {remedy}"
    )
