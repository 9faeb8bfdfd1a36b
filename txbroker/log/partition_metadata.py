"""The file partition.metadata: the topic id of a partition's directory (Kafka's PartitionMetadataFile, KIP-516).

Two lines, `version: 0` and `topic_id: ` with 22 characters of base64url.
"""

from __future__ import annotations

import logging

from txbroker.names import NULL_TOPIC_ID, id_from_text, id_to_text

logger = logging.getLogger("txbroker.log")

_VERSION = "version: 0"
_TOPIC_ID = "topic_id: "


def format_metadata(topic_id: bytes) -> bytes:
    """The file's content."""
    return f"{_VERSION}\n{_TOPIC_ID}{id_to_text(topic_id)}".encode("ascii")


def read_topic_id(content: bytes) -> bytes:
    """The topic id in a file's content; ValueError when it is malformed."""
    lines = content.decode("utf-8", "replace").splitlines()
    if len(lines) != 2 or lines[0] != _VERSION or not lines[1].startswith(_TOPIC_ID):
        raise ValueError("it does not have its two lines")
    return id_from_text(lines[1].removeprefix(_TOPIC_ID))


def parse_metadata(content: bytes, path: str) -> bytes:
    """The topic id; NULL_TOPIC_ID, with a warning, when the file is malformed: the controller sends the id again."""
    try:
        return read_topic_id(content)
    except ValueError as error:
        logger.warning("%s is malformed and will be rewritten: %s", path, error)
        return NULL_TOPIC_ID
