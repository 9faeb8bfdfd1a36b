"""Compares the configurations of a topic on both sides: what would change records, refuse them, or delete them early."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

SOURCE_KEY = "txbroker.mirror.source"
FOREVER = -1
# Keys about the brokers of a cluster, which are not copied to another one.
NOT_COPIED = frozenset({
    "leader.replication.throttled.replicas", "follower.replication.throttled.replicas", "min.insync.replicas",
    "unclean.leader.election.enable", SOURCE_KEY,
})  # fmt: skip
APPEND_TIME = "LogAppendTime"
_SMALLER = {
    "message.timestamp.before.max.ms": "records with older timestamps",
    "message.timestamp.after.max.ms": "records with later timestamps",
}


def copied_configs(
    values: Mapping[str, str | None], own: Collection[str], known: Collection[str], *, same_offsets: bool
) -> tuple[dict[str, str | None], list[str]]:
    """The configuration for a new topic on the target, and the keys that the target does not know. `own`: set for the source's topic.

    A topic with LogAppendTime would have the times of the copying, except with the same offsets: it gets CreateTime.
    """
    left_out = NOT_COPIED if same_offsets else NOT_COPIED | {"message.timestamp.type"}
    wanted = {key: values[key] for key in sorted(own) if key not in left_out and values.get(key) is not None}
    return {key: value for key, value in wanted.items() if key in known}, [key for key in wanted if key not in known]


def differences(topic: str, source: Mapping[str, str | None], target: Mapping[str, str | None], *, same_offsets: bool) -> Iterator[str]:
    """A sentence for each difference that matters."""
    limit = _number(target, "max.message.bytes")
    if limit is not None and limit < (_number(source, "max.message.bytes") or 0):
        on_source = source["max.message.bytes"]
        yield f"{topic}: max.message.bytes is {limit} on the target, {on_source} on the source: it refuses larger batches"
    codec = target.get("compression.type")
    if codec not in (None, "producer") and not same_offsets:
        yield f"{topic}: compression.type is {codec} on the target: it recompresses batches of other codecs"
    if target.get("message.timestamp.type") == APPEND_TIME and not same_offsets:
        yield f"{topic}: message.timestamp.type is LogAppendTime on the target: timestamps are those of the copying"
    elif not same_offsets:
        yield from _refused_timestamps(topic, source, target)
    yield from _retention(topic, source, target)


def _refused_timestamps(topic: str, source: Mapping[str, str | None], target: Mapping[str, str | None]) -> Iterator[str]:
    for key, what in _SMALLER.items():
        ours = _number(target, key)
        theirs = _number(source, key)
        if ours is not None and ours < (2**63 - 1 if theirs is None else theirs):
            yield f"{topic}: {key} is {ours} on the target, {theirs} on the source: it refuses {what}"


def _retention(topic: str, source: Mapping[str, str | None], target: Mapping[str, str | None]) -> Iterator[str]:
    policies = [frozenset((each.get("cleanup.policy") or "").split(",")) for each in (source, target)]
    if policies[0] != policies[1]:
        yield f"{topic}: cleanup.policy is {target.get('cleanup.policy')} on the target, {source.get('cleanup.policy')} on the source"
    if "delete" in policies[1]:
        for key in ("retention.ms", "retention.bytes"):
            ours, theirs = _number(target, key), _number(source, key)
            if ours is not None and ours != FOREVER and (theirs in (None, FOREVER) or ours < (theirs or 0)):
                yield f"{topic}: {key} is {ours} on the target, {theirs} on the source: the target deletes records that the source keeps"


def _number(configs: Mapping[str, str | None], key: str) -> int | None:
    text = configs.get(key)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
