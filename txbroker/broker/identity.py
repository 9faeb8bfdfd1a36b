"""The identity of this broker: the file of the metadata tree, the cluster id and the broker id, checked against each other."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from txbroker.broker.environment import Environment
from txbroker.broker.stored_identity import check_replicas, is_incomplete
from txbroker.cluster import broker_ids, node_paths
from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.sqlite import FILE_NAME, remedy_without_metadata
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError
from txbroker.log.directories import LogDirectories
from txbroker.log.disk import Disk
from txbroker.log.meta_properties import Identity
from txbroker.logtools.process_directories import first_log, process_directories
from txbroker.names import id_to_text

CONNECT_S = 10.0

log = logging.getLogger("txbroker.broker")


class BrokerIdentity(NamedTuple):
    """The broker id and the cluster id."""

    broker_id: int
    cluster_id: str


async def open_tree(environment: Environment, config: BrokerConfig, directories: LogDirectories) -> Tree:
    """Open the metadata tree: that of ZooKeeper, of the server of this machine's brokers, or of a file in a log directory. StartError."""
    socket = config.optional_text("txbroker.metadata.socket")
    if socket:
        from txbroker.cluster.tree.served_tree import open_served_tree  # a broker alone does not import them
        from txbroker.cluster.tree.session_tree import SessionTree

        open_session = partial(open_served_tree, socket, environment.reactor, environment.random.random, timeout_s=CONNECT_S)
        return SessionTree(await open_session(), open_session, lambda: None, environment.reactor, None, environment.random.random)
    if is_clustered(config):
        from txbroker.broker.zookeeper_sessions import open_zookeeper  # a broker alone does not import kazoo

        _refuse_metadata_file(environment.disk, directories.online())
        return await open_zookeeper(environment, config, directories)
    online = directories.online()
    path = metadata_file(environment.disk, online, directories.offline())
    has_logs = any(first_log(environment.disk, directory) is not None for directory in online)
    return environment.open_tree(path, lambda: directories.found_full(posixpath.dirname(path)), not has_logs)


def is_clustered(config: BrokerConfig) -> bool:
    """Whether other brokers share the metadata: it is in ZooKeeper, or another process serves it."""
    return uses_zookeeper(config) or bool(config.optional_text("txbroker.metadata.socket"))


def uses_zookeeper(config: BrokerConfig) -> bool:
    """Whether the metadata is in ZooKeeper."""
    return bool(config.optional_text("zookeeper.connect"))


def _refuse_metadata_file(disk: Disk, online: Sequence[str]) -> None:
    """Refuse the directories of a broker alone: ZooKeeper does not have their topics."""
    for directory in online:
        if disk.size(f"{directory}/{FILE_NAME}") is not None:
            raise StartError(
                f"{directory} has the metadata of a broker without ZooKeeper ({FILE_NAME}), and zookeeper.connect is set: "
                "move the metadata to ZooKeeper with `txbroker export`, remove zookeeper.connect, or choose another log.dirs"
            )


def metadata_file(disk: Disk, online: Sequence[str], offline: Sequence[str]) -> str:
    """The path of the metadata: in the log directory that has it already, or else in the first one. StartError if it must exist."""
    candidates = [posixpath.join(directory, FILE_NAME) for directory in online]
    found = [path for path in candidates if disk.size(path) is not None]
    if not found and offline:
        raise StartError(
            f"no usable log directory has the metadata file {FILE_NAME}, and {', '.join(offline)} cannot be read: "
            "make it readable, or remove it from log.dirs to start with new metadata"
        )
    if not found or not disk.size(found[0]):
        _refuse_logs(disk, online, (found or [""])[0])
    for directory in online:
        if process_directories(disk, directory):
            raise StartError(f"{directory} has the data of several processes: start them with `txbroker run --processes`")
    return (found or candidates)[0]


def _refuse_logs(disk: Disk, online: Sequence[str], empty: str) -> None:
    """Refuse logs without metadata: their topics' configurations are unknown, and the default retention could delete their records.

    `empty`: the path of a metadata file without content; "" if there is none.
    """
    for directory in online:
        name = first_log(disk, directory)
        if name is not None and empty:
            raise StartError(f"{empty} is empty, and {directory} has logs, such as {name}: {remedy_without_metadata('import --force')}")
        if name is not None:
            raise StartError(
                f"{directory} has logs, such as {name}, but no directory of log.dirs has the metadata of their topics ({FILE_NAME}): "
                f"{remedy_without_metadata('import')}, or choose another log.dirs"
            )


async def identify(
    environment: Environment, config: BrokerConfig, tree: Tree, directories: LogDirectories, stored: Identity, new_cluster_id: str | None
) -> BrokerIdentity:
    """Find the ids that are configured, stored or generated, and store them where they are missing. StartError if they conflict.

    `new_cluster_id` is the id for a new cluster; an existing cluster keeps its own, as with Kafka's `storage format --ignore-formatted`.
    """
    if is_clustered(config) and stored.cluster_id is not None and await broker_ids.stored_cluster_id(tree) is None:
        belongs = f"log.dirs belongs to cluster {stored.cluster_id}, and"
        if uses_zookeeper(config):
            raise StartError(
                f"{belongs} ZooKeeper at {config.text('zookeeper.connect')} has no cluster: "
                "correct zookeeper.connect (its path too), restore ZooKeeper's data, or choose another log.dirs"
            )
        raise StartError(f"{belongs} the metadata file {FILE_NAME} is new: restore it from a backup, or choose another log.dirs")
    await broker_ids.create_structure(tree)
    cluster_id = await broker_ids.cluster_id(tree, lambda: stored.cluster_id or new_cluster_id or id_to_text(environment.random_bytes(16)))
    if new_cluster_id is not None and new_cluster_id != cluster_id:
        log.warning("ignoring CLUSTER_ID=%s: the data in log.dirs belongs to cluster %s", new_cluster_id, cluster_id)
    if not is_clustered(config) and is_incomplete(stored):
        names = await tree.children(node_paths.TOPICS)
        found = await tree.get_all([node_paths.topic(name) for name in names])
        topics = {name: one[0] for name, one in zip(names, found, strict=True) if one is not None}
        check_replicas(config, directories.online(), stored, topics)
    broker_id = config.int("broker.id")
    if broker_id < 0:
        broker_id = stored.broker_id if stored.broker_id is not None else await _generated_id(config, tree)
    directories.claim(Identity(broker_id, cluster_id))
    return BrokerIdentity(broker_id, cluster_id)


async def _generated_id(config: BrokerConfig, tree: Tree) -> int:
    """A new id as in Kafka: reserved.broker.max.id plus the version of a node that each new broker writes."""
    if not config.boolean("broker.id.generation.enable"):
        raise StartError("broker.id is not set and broker.id.generation.enable is false: set broker.id, or enable its generation")
    stat = await tree.set(node_paths.BROKER_SEQUENCE, None)
    return config.int("reserved.broker.max.id") + stat.version
