"""The state of the whole cluster: brokers, all partitions, compaction, open transactions. The worst topics are named, with counts.

It sends requests one after the other, each about a limited number of partitions, topics or groups.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from txbroker.cli.doctor import group_sweep, transaction_checks
from txbroker.cli.doctor.asking import PARTITIONS_AT_ONCE, TOPICS_AT_ONCE, Asking, Partition, by_topic, portions, topic_configs, worst
from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import FAILED, Findings, named
from txbroker.cli.doctor.topic_checks import CLEANER_KEY
from txbroker.cli.step_progress import Steps
from txbroker.client.client_errors import RequestFailed
from txbroker.client.offset_requests import FoundOffset
from txbroker.errors import ErrorCode, error_name
from txbroker.names import amount
from txbroker.wire.messages.metadata import MetadataResponse, MetadataResponsePartition

KEYS = ("min.insync.replicas", "cleanup.policy")
AGAIN_S = 1.0  # leaders may change while they are asked
# Topics whose open transactions are looked at one by one.
HELD_TOPICS_MAX = 20
READ_COMMITTED = 1
_LEADERSHIP = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
               ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)  # fmt: skip
Parts = dict[Partition, MetadataResponsePartition]


def check(findings: Findings, cluster: Cluster, interval_s: float) -> None:
    """Check everything. `interval_s`: the time between the two samples of a group's lag."""
    steps = Steps()
    asking = Asking(findings, cluster, steps)
    try:
        metadata = asking.metadata()
        if metadata is None:
            return
        groups = group_sweep.Groups(asking)
        parts = _partitions(metadata)
        groups.first_sample(leaders_of(parts))
        check_brokers(findings, metadata, parts)
        _check_topics(findings, metadata)
        check_partitions(findings, parts)
        configs = _configs(findings, asking, sorted({topic for topic, _ in parts}))
        check_min_isr(findings, parts, configs)
        parts, ends = _ends(asking, metadata, parts)
        check_leaders(findings, parts, ends)
        _check_compaction(findings, asking, parts, configs)
        _check_transactions(findings, asking, cluster, parts, ends)
        groups.check(findings, interval_s)
    finally:
        steps.finish()


def _partitions(metadata: MetadataResponse) -> Parts:
    return {(topic.name, part.partition_index): part for topic in metadata.topics if topic.name for part in topic.partitions}


def leaders_of(parts: Parts) -> dict[int, list[Partition]]:
    """The partitions by leader, without those that have none."""
    found: dict[int, list[Partition]] = {}
    for each, part in parts.items():
        if part.leader_id >= 0:
            found.setdefault(part.leader_id, []).append(each)
    return found


def check_brokers(findings: Findings, metadata: MetadataResponse, parts: Parts) -> None:
    """Compare the brokers that have replicas with those that are registered."""
    live = {broker.node_id for broker in metadata.brokers}
    replicas = Counter(broker for part in parts.values() for broker in part.replica_nodes)
    for broker in sorted(replicas.keys() - live):
        found = f"broker {broker} is not registered, but has {amount(replicas[broker], 'replica')}: it is stopped, or has lost ZooKeeper"
        advice = (
            f"start broker {broker}, or see its log; if it is lost, start another one with broker.id={broker}, or move its replicas with "
            "`txbroker reassign-partitions`"
        )
        findings.failed("brokers", found, advice)
    if not replicas.keys() - live:
        findings.ok("brokers", f"all {amount(len(replicas.keys() | live), 'broker')} that should run are registered")
    offline = Counter(broker for part in parts.values() for broker in part.offline_replicas if broker in live)
    if offline:
        found = f"replicas are offline on brokers that run: {', '.join(f'broker {name}' for name in worst(offline))}"
        findings.failed("log directories", found, "see the log of each broker, repair the log directory that failed, and restart it")


def _check_topics(findings: Findings, metadata: MetadataResponse) -> None:
    refused = [topic for topic in metadata.topics if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)]
    if refused:
        names = [f"{topic.name} ({error_name(topic.error_code)})" for topic in refused]
        findings.failed("topics", f"the broker does not describe {named(names)}", "see the broker's log")


def _in_topics(partitions: Iterable[Partition]) -> str:
    """How many partitions, and the topics that have most of them."""
    counts = Counter(topic for topic, _ in partitions)
    return f"{amount(sum(counts.values()), 'partition')} in {amount(len(counts), 'topic')}: {named(worst(counts))}"


def _explain(partitions: Sequence[Partition]) -> str:
    topic = Counter(topic for topic, _ in partitions).most_common(1)[0][0]
    return f"`txbroker doctor --topic {topic}` says why"


def check_partitions(findings: Findings, parts: Parts) -> None:
    """Leaders and in-sync replicas of all partitions."""
    leaderless = [each for each, part in parts.items() if part.leader_id < 0]
    behind = [each for each, part in parts.items() if part.leader_id >= 0 and len(part.isr_nodes) < len(part.replica_nodes)]
    if leaderless:
        found = f"no leader, so that producers and consumers wait: {_in_topics(leaderless)}"
        findings.failed("partitions", found, _explain(leaderless))
    if behind:
        findings.warning("partitions", f"replicas are out of sync: {_in_topics(behind)}", _explain(behind))
    if not leaderless and not behind:
        topics = len({topic for topic, _ in parts})
        found = f"{amount(len(parts), 'partition')} in {amount(topics, 'topic')}, all with a leader, all replicas in sync"
        findings.ok("partitions", found if parts else "there are no topics")


def check_min_isr(findings: Findings, parts: Parts, configs: Mapping[str, Mapping[str, str | None]]) -> None:
    """Partitions that refuse acks=all."""
    few = []
    for each, part in parts.items():
        required = configs.get(each[0], {}).get("min.insync.replicas") or "1"
        if part.leader_id >= 0 and required.isdecimal() and len(part.isr_nodes) < min(int(required), len(part.replica_nodes)):
            few.append(each)
    if few:
        found = f"fewer in-sync replicas than min.insync.replicas, so that acks=all fails: {_in_topics(few)}"
        findings.failed("acks=all", found, "start the missing brokers, or lower min.insync.replicas")


def _configs(findings: Findings, asking: Asking, topics: Sequence[str]) -> dict[str, Mapping[str, str | None]]:
    """The values of KEYS of each topic, as far as the brokers show them."""
    found: dict[str, Mapping[str, str | None]] = {}
    show = asking.step("configurations of topics")
    problem = ""
    for some in portions(topics, TOPICS_AT_ONCE):
        for topic, values in (asking.ask_any(topic_configs, dict.fromkeys(some, KEYS)) or {}).items():
            if not isinstance(values, RequestFailed):
                found[topic] = values
            elif values.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted meanwhile
                problem = problem or str(values)
        show(len(found), len(topics))
    if problem:
        advice = "describing configurations may need an ACL, and needs the cluster's ZooKeeper"
        findings.warning("configurations", f"min.insync.replicas and compaction are not checked: {problem}", advice)
    return found


def _ends(asking: Asking, metadata: MetadataResponse, parts: Parts) -> tuple[Parts, dict[Partition, FoundOffset]]:
    """The ends of all partitions from their leaders; asked again where leaders have changed, with the metadata by then."""
    ends = asking.offsets(leaders_of(parts))
    moved = [each for each, end in ends.items() if end.error_code in _LEADERSHIP]
    if moved:
        time.sleep(AGAIN_S)
        newer = _partitions(asking.metadata() or metadata)
        for each in moved:
            del ends[each]
        again = {each: newer[each] for each in moved if each in newer}
        ends |= asking.offsets(leaders_of(again))
        parts = {**parts, **again}
    return parts, ends


def check_leaders(findings: Findings, parts: Parts, ends: Mapping[Partition, FoundOffset]) -> None:
    """Whether the leaders that the metadata names serve their partitions."""
    refused: dict[tuple[int, int], list[Partition]] = {}
    for each, end in ends.items():
        if end.error_code:
            refused.setdefault((parts[each].leader_id, end.error_code), []).append(each)
    for (leader, code), partitions in refused.items():
        found = f"broker {leader} is their leader and refuses requests with {error_name(code)}: {_in_topics(partitions)}"
        findings.failed("leaders", found, f"see the log of broker {leader}; restart it if it does not change")
    silent = [each for each, part in parts.items() if part.leader_id >= 0 and each not in ends]
    if silent:
        brokers = sorted({parts[each].leader_id for each in silent})
        found = f"their leaders cannot be asked: {_in_topics(silent)}"
        findings.failed("leaders", found, f"see the findings on broker {', '.join(map(str, brokers))}")
    if not refused and not silent and ends:
        findings.ok("leaders", f"they serve all {amount(len(ends), 'partition')}")


def _check_compaction(findings: Findings, asking: Asking, parts: Parts, configs: Mapping[str, Mapping[str, str | None]]) -> None:
    """Uncleanable partitions, which only a txbroker reports."""
    compacted = {each: part for each, part in parts.items() if "compact" in (configs.get(each[0], {}).get("cleanup.policy") or "")}
    reasons: dict[Partition, str] = {}
    reported = 0
    show = asking.step("compaction of partitions")
    for leader, partitions in leaders_of(compacted).items():
        for some in portions(partitions, PARTITIONS_AT_ONCE):
            keys = {topic: [f"{CLEANER_KEY}.{index}" for index in indexes] for topic, indexes in by_topic(some).items()}
            for topic, values in (asking.ask(leader, topic_configs, keys) or {}).items():
                for key, text in () if isinstance(values, RequestFailed) else values.items():
                    reported += 1
                    state = json.loads(text or "{}")
                    if state.get("why") == "uncleanable":
                        reasons[topic, int(key.removeprefix(f"{CLEANER_KEY}."))] = state.get("why_not_now") or ""
            show(reported, len(compacted))
    if reasons:
        (first, why), *_ = sorted(reasons.items())
        found = f"uncleanable, so that their logs grow: {_in_topics(reasons)}; {first[0]}-{first[1]}: {why}"
        advice = "see the broker's log and `txbroker log verify`; `txbroker log-cleaner --compact-now TOPIC` tries again"
        findings.failed("compaction", found, advice)
    elif reported:
        findings.ok("compaction", f"{amount(reported, 'compacted partition')}, none uncleanable")


def _check_transactions(
    findings: Findings, asking: Asking, cluster: Cluster, parts: Parts, ends: Mapping[Partition, FoundOffset]
) -> None:
    """Transactions that are open for too long, or that no coordinator knows."""
    stable = asking.offsets(leaders_of(parts), READ_COMMITTED)
    held = Counter[str]()
    for each, offset in stable.items():
        if each in ends and not offset.error_code and not ends[each].error_code and offset.offset < ends[each].offset:
            held[each[0]] += ends[each].offset - offset.offset
    late = 0
    show = asking.step("topics with open transactions")
    for done, (topic, _) in enumerate(held.most_common(HELD_TOPICS_MAX)):
        here = [part for (name, _), part in parts.items() if name == topic]
        with suppress(RequestFailed):
            for finding in transaction_checks.late(cluster, topic, here, int(time.time() * 1000)):
                late += 1
                if late <= HELD_TOPICS_MAX:
                    findings.add(finding._replace(outcome=FAILED))
        show(done, len(held))
    if not late and stable:
        findings.ok("transactions", "none is open for too long")
