"""What rules change in the answers of the broker: errors of topics in Metadata, the throttle time, and record batches of Fetch."""

from __future__ import annotations

from typing import Any

from txbroker.errors import ErrorCode
from txbroker.testing.rule_specs import RuleSpec
from txbroker.testing.traffic import TopicIds


def changed_answer(response: Any, version: int, spec: RuleSpec, ids: TopicIds) -> bool:
    """Change a decoded answer; False if it has nothing that the rule can change."""
    if spec.action == "throttle":
        return _throttle(response, version, spec.milliseconds)
    if spec.action == "corrupt":
        return _corrupt(response, spec, ids)
    for topic in response.topics:
        if spec.topic in ("", topic.name):
            topic.error_code, topic.partitions = ErrorCode[spec.error], []
    return True


def _throttle(response: Any, version: int, milliseconds: int) -> bool:
    field = type(response).__fields__.get("throttle_time_ms")
    if field is None or version not in field.versions:
        return False
    response.throttle_time_ms = milliseconds
    return True


def _corrupt(response: Any, spec: RuleSpec, ids: TopicIds) -> bool:
    """Change the last byte of the first partition with records: of their data, so that their CRC is wrong."""
    for topic in response.responses:
        name = topic.topic or ids.name(topic.topic_id)
        for partition in topic.partitions:
            chosen = spec.topic in ("", name) and spec.partition in (-1, partition.partition_index)
            if chosen and partition.records is not None and len(partition.records):
                records = bytearray(partition.records)
                records[-1] ^= 0xFF
                partition.records = memoryview(records)
                return True
    return False
