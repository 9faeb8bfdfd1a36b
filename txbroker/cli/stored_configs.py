"""The dynamic configurations of a broker that does not run, from what it left in its log directories."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txbroker.cluster import node_paths
from txbroker.cluster.node_data import MalformedNode, decode_config
from txbroker.cluster.node_paths import Entity
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.cluster.tree.sqlite_file import read_nodes
from txbroker.errors import StartError, StorageError
from txbroker.log import meta_properties
from txbroker.log.directory import LOCK_FILE
from txbroker.log.disk import OsDisk


class KeptConfigs(NamedTuple):
    """The dynamic values of one broker, and those of all brokers."""

    broker: Mapping[str, str]
    default: Mapping[str, str]


class NotReadable(Exception):
    """They cannot be read now; the sentence says why."""


def kept_broker_configs(directories: Sequence[str], broker_id: int) -> KeptConfigs:
    """What the metadata in one of these directories says; nothing where no broker was ever started. Nothing is written.

    `broker_id` -1 is the broker that the directories belong to. NotReadable while a broker uses them.
    """
    found = [directory for directory in directories if os.path.exists(os.path.join(directory, FILE_NAME))]
    if not found:
        return KeptConfigs({}, {})
    directory = found[0]
    try:
        lock = OsDisk().lock(os.path.join(directory, LOCK_FILE))
        if lock is None:
            raise NotReadable(f"a broker runs on {directory}: what was changed while it runs is not among these values, ask it for them")
        lock.release()
        if broker_id < 0:
            broker_id = _stored_id(directory)
        entities = [node_paths.broker_entity(broker_id), node_paths.ALL_BROKERS]
        nodes = read_nodes(os.path.join(directory, FILE_NAME), [entity.path for entity in entities])
        return KeptConfigs(*(_decoded(nodes, entity) for entity in entities))
    except (StartError, StorageError, MalformedNode) as error:
        raise NotReadable(f"what was changed while the broker ran is not among these values: {error}") from error


def _stored_id(directory: str) -> int:
    path = os.path.join(directory, meta_properties.FILE_NAME)
    stored = meta_properties.parse(OsDisk().read(path) or b"version=0", path).broker_id
    return -1 if stored is None else stored


def _decoded(nodes: Mapping[str, bytes], entity: Entity) -> Mapping[str, str]:
    data = nodes.get(entity.path)
    return {} if data is None else decode_config(data)
