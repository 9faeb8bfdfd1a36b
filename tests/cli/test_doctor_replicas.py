"""The reasons that the doctor finds for replicas that are out of sync and partitions without a leader."""

from __future__ import annotations

import pytest

from txbroker.cli.doctor.findings import FAILED, WARNING
from txbroker.cli.doctor.replica_checks import ReplicaFacts, explain
from txbroker.wire.messages.metadata import MetadataResponsePartition


def partition(index: int, leader: int, isr: list[int], offline: list[int] | None = None) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0, partition_index=index, leader_id=leader, replica_nodes=[1, 2, 3], isr_nodes=isr, offline_replicas=offline or []
    )


@pytest.mark.parametrize(
    ("part", "facts", "found", "advice"),
    [
        (partition(0, 1, [1, 2]), ReplicaFacts({1, 2}, {1, 2}), "broker 3 is not registered: it is stopped, or has lost ZooKeeper",
         "start broker 3, or see its log"),
        (partition(0, 1, [1, 2], [3]), ReplicaFacts({1, 2, 3}, {1, 2, 3}), "the log directory of broker 3 has failed",
         "replace the disk of broker 3, and restart it"),
        (partition(0, 1, [1, 2]), ReplicaFacts({1, 2, 3}, {1, 2, 3}, {(0, 3): 7}, {0: [3]}),
         "a reassignment adds the replica of broker 3, which is still copied, 7 records behind", "wait, or see `txbroker reassign"),
        (partition(0, 1, [1, 2]), ReplicaFacts({1, 2, 3}, {1, 2}), "broker 3 is registered and does not answer",
         "see the log and the load of broker 3"),
        (partition(0, 1, [1, 2]), ReplicaFacts({1, 2, 3}, {1, 2, 3}, {(0, 3): 1}), "broker 3 runs and has not caught up, 1 record behind",
         "wait if it has just started; else see its log, and its network connection to broker 1"),
    ],
)  # fmt: skip
def test_reasons_of_replicas_out_of_sync(part: MetadataResponsePartition, facts: ReplicaFacts, found: str, advice: str) -> None:
    (finding,) = explain("t", [part], facts)
    assert (finding.outcome, finding.check) == (WARNING, "replicas of t")
    assert finding.found == f"{found} (partition 0)"
    assert finding.advice.startswith(advice)


def test_partitions_with_the_same_reason_share_a_finding() -> None:
    parts = [partition(0, 1, [1, 2]), partition(1, 2, [2, 1]), partition(2, -1, [3])]
    findings = explain("t", parts, ReplicaFacts({1, 2}, {1, 2}))
    assert [finding.outcome for finding in findings] == [WARNING, FAILED]
    assert findings[0].found.endswith("(partition 0, partition 1)")
    assert findings[1].found == "no leader: only broker 3 had all committed records, and is not available (partition 2)"
    assert findings[1].advice.startswith("start broker 3, or repair their log directories; if they are lost, `txbroker leader-election")
    (alone,) = explain("t", [partition(0, -1, [2, 3])], ReplicaFacts(set(), set()))
    assert "only brokers 2, 3 had all committed records, and are not available" in alone.found
    assert "unclean" not in alone.advice
