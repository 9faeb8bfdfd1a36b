"""The dynamic configurations in the metadata file of log directories. They are read without a lock, also while a broker runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txbroker.cluster import node_paths
from txbroker.cluster.node_data import MalformedNode, decode_config
from txbroker.cluster.node_paths import Entity
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.cluster.tree.sqlite_file import read_nodes
from txbroker.errors import StartError, StorageError
from txbroker.log import meta_properties
from txbroker.log.disk import Disk
from txbroker.logtools.process_directories import data_directories, metadata_directories


class StoredConfigs(NamedTuple):
    """The dynamic values of one broker, and the cluster-wide defaults. `broker_id`: -1 if there is none yet."""

    broker: Mapping[str, str]
    default: Mapping[str, str]
    broker_id: int = -1


class NotReadable(Exception):
    """The metadata file cannot be read; the text says why."""


def broker_configs(disk: Disk, directories: Sequence[str], broker_id: int = -1) -> StoredConfigs:
    """The dynamic configurations of a broker. `broker_id` -1: the broker in the meta.properties of the directories. NotReadable.

    Without a metadata file in the directories both are empty.
    """
    path = _metadata_file(disk, directories)
    if path is None:
        return StoredConfigs({}, {}, broker_id)
    if broker_id < 0:
        broker_id = _stored_id(disk, path.rpartition("/")[0])
    broker, default = _read(path, [node_paths.broker_entity(broker_id), node_paths.ALL_BROKERS])
    return StoredConfigs(broker or {}, default or {}, broker_id)


def topic_configs(disk: Disk, directories: Sequence[str], topic: str) -> Mapping[str, str] | None:
    """The configurations that a topic overrides; None when there is no metadata file, or the topic is not in it. NotReadable."""
    path = _metadata_file(disk, directories)
    if path is None:
        return None
    (configs,) = _read(path, [node_paths.topic_entity(topic)])
    return configs


def _metadata_file(disk: Disk, directories: Sequence[str]) -> str | None:
    paths = [f"{directory}/{FILE_NAME}" for directory in metadata_directories(directories)]
    try:
        return next((path for path in paths if disk.size(path) is not None), None)
    except StorageError as error:
        raise NotReadable(str(error)) from error


def _stored_id(disk: Disk, directory: str) -> int:
    """The broker id in a directory, of several processes the first one's; -1: there is none."""
    try:
        for each in data_directories(disk, [directory]):
            path = f"{each}/{meta_properties.FILE_NAME}"
            stored = meta_properties.parse(disk.read(path) or b"", path).broker_id
            if stored is not None:
                return stored
    except (StartError, StorageError) as error:
        raise NotReadable(str(error)) from error
    return -1


def _read(path: str, entities: Sequence[Entity]) -> list[Mapping[str, str] | None]:
    """The configurations of each entity; None for one that has none."""
    try:
        nodes = read_nodes(path, [entity.path for entity in entities])
        return [decode_config(nodes[entity.path]) if entity.path in nodes else None for entity in entities]
    except (StartError, MalformedNode) as error:
        raise NotReadable(str(error)) from error
