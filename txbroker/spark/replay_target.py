"""The topic that a replay writes to: whether it takes the records as they are, and how far the replay has come."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txbroker.client.client_errors import RequestFailed
from txbroker.client.offset_requests import LATEST
from txbroker.client.topic_leaders import RETRIABLE
from txbroker.client.topic_reader import READ_UNCOMMITTED
from txbroker.console.failures import CommandFailed
from txbroker.console.texts import duration, moment
from txbroker.names import NULL_TOPIC_ID, id_to_text
from txbroker.spark.brokers import Brokers
from txbroker.spark.replay_progress import Positions, ReplayProgress
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TIMESTAMP_TYPE, BEFORE, AFTER = "message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
RETENTION, POLICY, BYTES = "retention.ms", "cleanup.policy", "max.message.bytes"
RETRY_S, RETRY_FOR_S = 0.2, 30.0


class TargetTopic(NamedTuple):
    """The target as it is at the start. `configs`: of the keys above, as far as the broker has them."""

    name: str
    topic_id: str
    partitions: Sequence[int]
    ends: Mapping[int, int]
    configs: Mapping[str, str | None]

    def number(self, key: str) -> int | None:
        """A number of the configuration; None where the broker does not have it."""
        value = self.configs.get(key)
        return None if value is None else int(value)


def describe_target(brokers: Brokers, name: str) -> TargetTopic:
    """CommandFailed, ClientError, also for a topic that does not exist."""
    reader = brokers.reader(name, READ_UNCOMMITTED)
    try:
        configs = reader.configs([TIMESTAMP_TYPE, BEFORE, AFTER, RETENTION, POLICY, BYTES])
        ends = {index: reader.offset(index, LATEST) for index in reader.partitions}
        topic_id = "" if reader.topic_id == NULL_TOPIC_ID else id_to_text(reader.topic_id)
        return TargetTopic(name, topic_id, reader.partitions, ends, configs)
    finally:
        reader.close()


def check_takes(target: TargetTopic, oldest_ms: int, newest_ms: int, now_ms: int, *, ignore_retention: bool) -> None:
    """CommandFailed for a target that would not keep records with these timestamps, or would change them."""
    name = target.name
    if target.configs.get(TIMESTAMP_TYPE) == "LogAppendTime":
        raise CommandFailed(f"{name} has {TIMESTAMP_TYPE}=LogAppendTime, by which the timestamps are lost; set it to CreateTime")
    before, after, retention = target.number(BEFORE), target.number(AFTER), target.number(RETENTION)
    if before is not None and now_ms - oldest_ms > before:
        raise CommandFailed(f"{name} refuses records that are older than {duration(before)}, and there are some of {moment(oldest_ms)}; "
                            f"raise its {BEFORE}")
    if after is not None and newest_ms - now_ms > after:
        raise CommandFailed(f"{name} refuses records that are {duration(after)} ahead of the clock, and there are some of "
                            f"{moment(newest_ms)}; raise its {AFTER}")
    deletes = "delete" in (target.configs.get(POLICY) or "").split(",")
    if deletes and not ignore_retention and retention is not None and 0 <= retention < now_ms - oldest_ms:
        raise CommandFailed(f"{name} deletes records after {duration(retention)}, and there are some of {moment(oldest_ms)}; "
                            f"set its {RETENTION}=-1 for the time being, or specify --ignore-retention")


def begin(
    brokers: Brokers, target: TargetTopic, group: str, sources: Mapping[int, str], starts: Mapping[int, Positions]
) -> Mapping[int, ReplayProgress]:
    """The progress in each of these target partitions. Partitions without one get their start, all of them in one commit.

    `sources`: `ReplayProgress.source` of each. A replay has one producer id, which is fixed before the first record is written.
    CommandFailed for a group of another replay, ClientError.
    """
    commits = brokers.commits(group)
    try:
        found = {index: ReplayProgress.of(one, group) for index, one in commits.fetch(target.name, list(starts)).items()}
        for index, one in found.items():
            if one.source != sources[index]:
                raise CommandFailed(f"the group {group} has the progress of another replay into {target.name} (source, partitioner, number "
                                    "of partitions, --since or the starts of --range differ); specify another --id, and another target "
                                    "if it must not have the records of both")
        if found.keys() != starts.keys():
            producer_id = next(iter(found.values())).producer_id if found else _new_producer_id(brokers)
            new = {index: ReplayProgress(sources[index], producer_id, 0, 0, start, start, target.ends[index])
                   for index, start in starts.items() if index not in found}
            commits.commit(target.name, {index: one.committed() for index, one in new.items()})
            found |= new
        return found
    finally:
        commits.close()


def _new_producer_id(brokers: Brokers) -> int:
    deadline_s = time.monotonic() + RETRY_FOR_S
    with brokers.connect() as connection:
        while True:
            answer: InitProducerIdResponse = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1))
            if not answer.error_code:
                return answer.producer_id
            if answer.error_code not in RETRIABLE or time.monotonic() > deadline_s:
                raise RequestFailed("the broker did not assign a producer id", answer.error_code)
            time.sleep(RETRY_S)
