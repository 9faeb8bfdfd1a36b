"""Whether a broker could start with the directories of log.dirs, for `txbroker config --check`.

Nothing stays changed: an empty directory is created and removed where a start would write. What other processes hold, such as ports and
the locks of directories, is not checked: the same check is made beside a running broker.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from txbroker.broker.audit_log import KEY as AUDIT_KEY
from txbroker.broker.identity import metadata_file
from txbroker.broker.process_data import check_process_data
from txbroker.broker.stored_identity import check_replicas, is_incomplete
from txbroker.cluster import node_paths
from txbroker.cluster.node_data import MalformedNode
from txbroker.cluster.tree.sqlite_file import data_of, read_tree
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError, StorageError
from txbroker.log import meta_properties
from txbroker.log.disk import storage_error
from txbroker.log.meta_properties import NO_IDENTITY, Identity
from txbroker.log.os_disk import OsDisk, OsFile

_PROBE = ".txbroker-check"


class DirectoryProblems(NamedTuple):
    """Sentences: `errors` prevent a start, `warnings` do not."""

    errors: list[str]
    warnings: list[str]


def check_directories(paths: Sequence[str], config: BrokerConfig, processes: int | None) -> DirectoryProblems:
    """Check absolute paths, each of which may be missing."""
    broker_id = config.int("broker.id")
    failures = {path: problem for path in paths if (problem := _problem(path)) is not None}
    if len(failures) == len(paths):
        return DirectoryProblems([f"{problem}; correct it, or choose another log.dirs" for problem in failures.values()], [])
    warnings = [f"{problem}: the broker starts without this log directory" for problem in failures.values()]
    usable = [path for path in paths if path not in failures]
    try:
        if processes is not None:
            check_process_data(OsDisk(), usable, processes, broker_id)
            return DirectoryProblems([], warnings)
        stored = _check_identity(usable, broker_id)
        existing = [path for path in usable if os.path.isdir(path)]
        if existing or failures:
            metadata = metadata_file(OsDisk(), existing, list(failures))
            if is_incomplete(stored) and os.path.exists(metadata):
                check_replicas(config, existing, stored, data_of(read_tree(metadata), node_paths.TOPICS))
    except MalformedNode as error:
        return DirectoryProblems([f"the metadata is damaged: {error}; restore its file from a backup"], [])
    except (StartError, StorageError) as error:
        return DirectoryProblems([str(error)], [])
    return DirectoryProblems([], warnings)


def _problem(path: str) -> str | None:
    """Why a start could not write there."""
    existing = path
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    probe = f"{existing}/{_PROBE}-{os.getpid()}"
    try:
        os.mkdir(probe)
        os.rmdir(probe)
        os.listdir(existing)
    except OSError as error:
        with suppress(OSError):
            os.rmdir(probe)
        return str(storage_error("write to" if existing == path else "create", path, error))
    return None


def audit_problem(config: BrokerConfig, processes: int | None) -> str | None:
    """Why a start could not write the audit log to its file; None if it could, or there is none."""
    path = config.optional_text(AUDIT_KEY)
    if path is None:
        return None
    try:
        if processes is None and os.path.exists(path):
            OsFile(path)
        else:
            probe = f"{os.path.dirname(path) or '.'}/{_PROBE}-{os.getpid()}"
            try:
                os.mkdir(probe)
                os.rmdir(probe)
            except OSError as error:
                raise storage_error("write", f"{path}.tmp", error) from error
    except StorageError as error:
        return f"{config.static.place((AUDIT_KEY,))}{AUDIT_KEY} is {path}: {error}; correct the path, or its permissions"
    return None


def _check_identity(paths: Sequence[str], broker_id: int) -> Identity:
    disk = OsDisk()
    together, together_path = NO_IDENTITY, ""
    for path in paths:
        file = f"{path}/{meta_properties.FILE_NAME}"
        content = disk.read(file)
        if content is not None:
            identity = meta_properties.parse(content, file)
            together = meta_properties.join(together, together_path, identity, file)
            together_path = together_path or file
    if broker_id >= 0:
        meta_properties.check(together, together_path, Identity(broker_id, together.cluster_id))
    return together
