"""Deletes configurations of brokers in the metadata file of a stopped broker, which does not start if it cannot use or read them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence

from txbroker.cluster.node_data import MalformedNode, decode_config, encode_config
from txbroker.cluster.node_paths import Entity
from txbroker.cluster.tree.interface import Set
from txbroker.cluster.tree.sqlite import FILE_NAME, SqliteNodes, connect
from txbroker.cluster.tree.znodes import Overlay
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.errors import StartError


def delete(log_dirs: str, entity: Entity, keys: Sequence[str]) -> None:
    """`log_dirs`: comma-separated. The keys are deleted durably, all or none; BadUsage, CommandFailed."""
    directories = [os.path.abspath(path.strip()) for path in log_dirs.split(",") if path.strip()]
    if not directories:
        raise BadUsage("--log-dirs contains no directory")
    found = [path for path in (os.path.join(directory, FILE_NAME) for directory in directories) if os.path.exists(path)]
    if len(found) != 1:
        what = f"several metadata files ({', '.join(found)}): specify the right directory" if found else (
            f"no metadata file {FILE_NAME} in {', '.join(directories)}: specify the log.dirs of the broker (of `txbroker run`, with "
            "--processes); a cluster on ZooKeeper has its metadata there"
        )  # fmt: skip
        raise CommandFailed(f"found {what}")
    try:
        nodes = SqliteNodes(connect(found[0], create=False))
        try:
            _delete(nodes, entity, keys)
        finally:
            nodes.close()
    except sqlite3.OperationalError as error:
        raise CommandFailed(f"{found[0]} cannot be used ({error}): if a broker is running on it, stop it first, or use "
                            "--bootstrap-server") from error  # fmt: skip
    except (sqlite3.Error, StartError, MalformedNode) as error:
        raise CommandFailed(f"{found[0]} cannot be used: {error}") from error


def _delete(nodes: SqliteNodes, entity: Entity, keys: Sequence[str]) -> None:
    node = nodes.get(entity.path)
    stored = {} if node is None or node.data is None else decode_config(node.data)
    missing = [key for key in keys if key not in stored]
    if missing or node is None:
        known = f"set are {', '.join(sorted(stored))}" if stored else "none is set"
        raise CommandFailed(f"Invalid config(s): {','.join(missing)}: not in {entity.path} of the metadata; {known}")
    left = {name: text for name, text in stored.items() if name not in keys}
    overlay = Overlay(nodes)
    overlay.perform([Set(entity.path, encode_config(left), node.version)], 0)
    nodes.write(overlay.changes, overlay.zxid)
