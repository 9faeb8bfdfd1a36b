"""What rules change in the answers of the broker: fields, errors in Metadata, the throttle time, and record batches of Fetch."""

from __future__ import annotations

from typing import Any

from txbroker.errors import ErrorCode
from txbroker.testing.edited_fields import apply_edits, parse_edits
from txbroker.testing.error_scopes import PARTITION, REQUEST, TOPIC
from txbroker.testing.rule_set import ActiveRule
from txbroker.testing.rule_specs import RuleSpec
from txbroker.testing.traffic import TopicIds

NO_LEADER = -1


def changed_answer(response: Any, version: int, rule: ActiveRule, ids: TopicIds) -> bool:
    """Change a decoded answer; False if it has nothing that the rule can change."""
    spec = rule.spec
    if spec.action == "throttle":
        return _throttle(response, version, spec.milliseconds)
    if spec.action == "edit":
        return apply_edits(response, version, parse_edits(type(response), spec.edit or {}))
    if spec.action == "corrupt":
        return _corrupt(response, spec, ids)
    return _metadata_error(response, version, rule)


def _metadata_error(response: Any, version: int, rule: ActiveRule) -> bool:
    """The error of the topics, unless the rule names a partition or another scope. Clients get the brokers in any case."""
    spec, code = rule.spec, ErrorCode[rule.spec.error]
    at = spec.at or (TOPIC if spec.partition < 0 else PARTITION)
    if at == REQUEST:
        response.error_code = code
        return version in type(response).__fields__["error_code"].versions
    topics = [topic for topic in response.topics if rule.chooses(topic.name or "", -1)]
    if at == TOPIC:
        for topic in topics:
            topic.error_code, topic.partitions = code, []
        return bool(topics)
    partitions = [each for topic in topics for each in topic.partitions if rule.chooses(topic.name or "", each.partition_index)]
    for each in partitions:
        each.error_code = code
        if code == ErrorCode.LEADER_NOT_AVAILABLE:
            each.leader_id, each.leader_epoch = NO_LEADER, -1
    return bool(partitions)


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
