"""meta.properties: the broker and cluster of a log directory (Kafka's MetaProperties, version 0 as with ZooKeeper).

version=0
broker.id=1
cluster.id=lvr4NfIWTo6tu8cpVcm0iw
"""

from __future__ import annotations

import re
from typing import NamedTuple

from txbroker.config.properties import MalformedProperties, parse_properties
from txbroker.errors import StartError

FILE_NAME = "meta.properties"


class Identity(NamedTuple):
    """The broker and the cluster of log directories; None for what is not known yet."""

    broker_id: int | None
    cluster_id: str | None


_BROKER_ID = re.compile("[0-9]{1,10}")
NO_IDENTITY = Identity(None, None)


def parse(content: bytes, path: str) -> Identity:
    """The identity in a file's content; StartError when it is not that of a broker with metadata in ZooKeeper.

    A file without a version has version 0, and may have no ids: also an empty one, and one of zeros or other bytes (Kafka's
    MetaProperties.Builder).
    """
    try:
        values = {key: property.text.strip() for key, property in parse_properties(content, path, {}).items()}
    except MalformedProperties as error:
        raise StartError(f"{path} is damaged ({error}): remove it, and set broker.id to the id of this broker") from error
    version = values.get("version", "0")
    if version == "1":
        raise StartError(
            f"{path} belongs to KRaft node {values.get('node.id', '?')} (version 1), whose metadata this broker cannot read; "
            "choose another directory for log.dirs"
        )
    if version != "0":
        raise StartError(
            f"{path} has version {version[:40]!r}, only version 0 is supported: restore it from a backup, or choose another directory for "
            "log.dirs"
        )
    broker_id = values.get("broker.id")
    if broker_id is not None and (not _BROKER_ID.fullmatch(broker_id) or int(broker_id) >= 2**31):
        raise StartError(f"{path} has broker.id={broker_id[:40]}, which is not a broker id; correct it or remove the file")
    return Identity(None if broker_id is None else int(broker_id), values.get("cluster.id") or None)


def format_identity(identity: Identity) -> bytes:
    """The content of the file."""
    return f"version=0\nbroker.id={identity.broker_id}\ncluster.id={identity.cluster_id}\n".encode()


def join(first: Identity, first_path: str, other: Identity, other_path: str) -> Identity:
    """The identity in two files together; StartError when they differ."""
    for name, a, b in (("broker.id", first.broker_id, other.broker_id), ("cluster.id", first.cluster_id, other.cluster_id)):
        if a is not None and b is not None and a != b:
            raise StartError(f"{first_path} has {name}={a} and {other_path} has {name}={b}; log.dirs must all belong to one broker")
    return Identity(*(a if a is not None else b for a, b in zip(first, other, strict=True)))  # type: ignore[arg-type]


def check(stored: Identity, path: str, wanted: Identity) -> None:
    """StartError unless a directory with the identity `stored` belongs to the broker `wanted`."""
    if stored.cluster_id is not None and stored.cluster_id != wanted.cluster_id:
        raise StartError(
            f"{path} belongs to cluster {stored.cluster_id}, but this broker is in cluster {wanted.cluster_id}; "
            "check log.dirs and where the cluster's metadata is"
        )
    if stored.broker_id is not None and stored.broker_id != wanted.broker_id:
        raise StartError(f"{path} belongs to broker {stored.broker_id}, but broker.id is {wanted.broker_id}; correct broker.id or log.dirs")
