"""Which broker of which cluster this is: the metadata tree's file, the cluster id, the broker id, all in agreement."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from txbroker.broker.world import World
from txbroker.cluster import broker_ids, node_paths
from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError
from txbroker.log import directory_names
from txbroker.log.directories import LogDirectories
from txbroker.log.directory_names import Fate
from txbroker.log.meta_properties import Identity
from txbroker.names import id_to_text

log = logging.getLogger("txbroker.broker")


class BrokerIdentity(NamedTuple):
    """What `identify` has found out."""

    broker_id: int
    cluster_id: str


def open_tree(world: World, directories: LogDirectories) -> Tree:
    """The metadata tree, whose file is in the first log directory, or in whichever has it already."""
    candidates = [posixpath.join(directory, FILE_NAME) for directory in directories.online()]
    found = [path for path in candidates if world.disk.size(path) is not None]
    offline = directories.offline()
    if not found and offline:
        raise StartError(
            f"No usable log directory holds the metadata file {FILE_NAME}, and {', '.join(offline)} cannot be read: "
            "make it readable, or take it out of log.dirs to start with new metadata."
        )
    if not found:
        _refuse_foreign(world, directories.online())
    return world.open_tree((found or candidates)[0])


def _refuse_foreign(world: World, online: Sequence[str]) -> None:
    """Logs whose topics nobody knows are somebody else's: their configurations are unknown, and retention would go by the defaults."""
    for directory in online:
        for name in world.disk.names(directory):
            parsed = directory_names.parse(name)
            if parsed is not None and parsed.fate in (Fate.KEEP, Fate.FUTURE) and world.disk.is_directory(f"{directory}/{name}"):
                raise StartError(
                    f"{directory} has logs, such as {name}, and none of log.dirs has the metadata of their topics ({FILE_NAME}): "
                    "`txbroker import` takes over what Apache Kafka has left, with its metadata; else choose another log.dirs"
                )


async def identify(
    world: World, config: BrokerConfig, tree: Tree, directories: LogDirectories, stored: Identity, wanted: str | None
) -> BrokerIdentity:
    """What is configured, stored or generated; written where it is missing. StartError when the three disagree.

    `wanted` is the id of a new cluster; one that there is keeps its own, as with Kafka's `storage format --ignore-formatted`.
    """
    await broker_ids.create_structure(tree)
    cluster_id = await broker_ids.cluster_id(tree, lambda: stored.cluster_id or wanted or id_to_text(world.random_bytes(16)))
    if wanted is not None and wanted != cluster_id:
        log.warning("CLUSTER_ID is %s, but the data in log.dirs belongs to cluster %s, which it stays", wanted, cluster_id)
    broker_id = config.int("broker.id")
    if broker_id < 0:
        broker_id = stored.broker_id if stored.broker_id is not None else await _generated_id(config, tree)
    directories.claim(Identity(broker_id, cluster_id))
    return BrokerIdentity(broker_id, cluster_id)


async def _generated_id(config: BrokerConfig, tree: Tree) -> int:
    """Kafka's way: the version of a node that each new broker writes, above reserved.broker.max.id."""
    if not config.boolean("broker.id.generation.enable"):
        raise StartError("broker.id is not set, and broker.id.generation.enable is false: set one of them.")
    stat = await tree.set(node_paths.BROKER_SEQUENCE, None)
    return config.int("reserved.broker.max.id") + stat.version
