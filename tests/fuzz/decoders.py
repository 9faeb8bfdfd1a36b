"""All decoders and the errors that they may raise: messages in all versions, records of internal topics, files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from tests.support.messages import random_message
from tests.wire.test_schemas import DECLARED
from txbroker.cluster import node_data
from txbroker.config.properties import parse_properties
from txbroker.errors import BrokerError, ConfigError, CorruptRecords, ProtocolError, StartError
from txbroker.groups import group_records as group_records
from txbroker.groups import subscription
from txbroker.log import checkpoints, directory_names, file_names, meta_properties, partition_metadata, producer_snapshots
from txbroker.log.checkpoints import MalformedCheckpoint
from txbroker.logtools.dump.decoders import show_offsets, show_text, show_transactions
from txbroker.wire.codec import decode, encode
from txbroker.wire.headers import read_client_id
from txbroker.wire.records import Record
from txbroker.wire.schema import Message

MESSAGES = [(DECLARED[name], version) for name in sorted(DECLARED)
            for version in range(DECLARED[name].versions.low, DECLARED[name].versions.high + 1)]


def decode_message(cls: type[Message], version: int, data: bytes) -> bool:
    """Whether these bytes are a valid message, which must be equal after encoding and decoding it again."""
    try:
        message = decode(cls, version, memoryview(bytearray(data)))
    except ProtocolError:
        return False
    again = b"".join(bytes(part) for part in encode(message, version))
    assert decode(cls, version, again) == message
    return True


def example(cls: type[Message], version: int, seed: int) -> bytes:
    """The encoded message."""
    return b"".join(bytes(part) for part in encode(random_message(cls, version, Random(seed)), version))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _of(data: bytes) -> Record:
    """A record; the first byte is the length of its key."""
    size = data[0] if data else 0
    return Record(0, 0, data[1 : 1 + size] or None, data[1 + size :] or None)


def _group_record(data: bytes) -> object:
    record = _of(data)
    return group_records.read(record.key, record.value)


def _headers(data: bytes) -> object:
    for version in (1, 2):
        with suppress(ProtocolError):
            _, position = read_client_id(memoryview(data), version)
            assert position <= len(data)
    return None


# The decoders of files, nodes and names, with the errors that their callers expect.
OTHERS: Mapping[str, tuple[Callable[[bytes], Any], tuple[type[Exception], ...]]] = {
    "request header": (_headers, ()),
    "group records": (_group_record, (ProtocolError, CorruptRecords)),
    "subscription": (subscription.read_topics, ()),
    "server.properties": (lambda data: parse_properties(data, "file", {"HOME": "/"}), (ConfigError,)),
    "checkpoint": (checkpoints.parse_offsets, (MalformedCheckpoint,)),
    "epoch checkpoint": (lambda data: checkpoints.parse_lines(data, 2), (MalformedCheckpoint,)),
    "meta.properties": (lambda data: meta_properties.parse(data, "file"), (StartError,)),
    "partition.metadata": (lambda data: partition_metadata.parse_metadata(data, "file"), (BrokerError,)),
    "snapshot": (producer_snapshots.parse_snapshot, (CorruptRecords,)),
    "directory name": (lambda data: directory_names.parse(_text(data)), ()),
    "file name": (lambda data: file_names.parse_name(_text(data)), ()),
    "cluster id": (node_data.decode_cluster_id, (node_data.MalformedNode,)),
    "broker": (node_data.decode_broker, (node_data.MalformedNode,)),
    "controller epoch": (node_data.decode_controller_epoch, (node_data.MalformedNode,)),
    "topic": (node_data.decode_topic, (node_data.MalformedNode,)),
    "state": (lambda data: node_data.decode_state(data, 0), (node_data.MalformedNode,)),
    "config": (node_data.decode_config, (node_data.MalformedNode,)),
    "config change": (node_data.decode_config_change, (node_data.MalformedNode,)),
    "producer id block": (node_data.decode_producer_id_block, (node_data.MalformedNode,)),
    "log dir event": (node_data.decode_log_dir_event, (node_data.MalformedNode,)),
    "dump of text": (lambda data: show_text(_of(data)), ()),
    "dump of offsets": (lambda data: show_offsets(_of(data)), ()),
    "dump of transactions": (lambda data: show_transactions(_of(data)), ()),
}


def decode_other(name: str, data: bytes) -> None:
    """Call one of OTHERS with these bytes; raises any error that its callers do not expect."""
    decoder, expected = OTHERS[name]
    logging.getLogger("txbroker").propagate = False
    with suppress(*expected):
        decoder(data)


SEEDS: Mapping[str, bytes] = {
    "server.properties": b"a = b\nc: d\\\n  e\n# f\nlisteners=${HOME}\\u0041\n",
    "checkpoint": b"0\n2\ntopic-a 0 5\ntopic-b 1 7\n",
    "epoch checkpoint": b"0\n2\n0 0\n3 17\n",
    "meta.properties": b"#comment\nversion=0\nbroker.id=1001\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n",
    "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
    "directory name": b"topic-12.0123456789abcdef0123456789abcdef-delete",
    "file name": b"00000000000000000012.index.deleted",
    "cluster id": b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}',
    "broker": b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://host:9092"],'
              b'"jmx_port":-1,"port":9092,"host":"host","version":5,"timestamp":"1700000000000","rack":"r"}',
    "controller epoch": b"7",
    "topic": b'{"removing_replicas":{},"partitions":{"0":[1,2]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","adding_replicas":{},"version":3}',
    "state": b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}',
    "config": b'{"version":1,"config":{"retention.ms":"1"}}',
    "config change": b'{"version":2,"entity_path":"topics/t"}',
    "producer id block": b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    "log dir event": b'{"version":1,"broker":1,"event":1}',
}
