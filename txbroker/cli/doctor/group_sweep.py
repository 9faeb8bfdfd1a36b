"""The lag of all groups of a cluster, by two samples."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from txbroker.cli.doctor.asking import GROUPS_AT_ONCE, Asking, Partition, portions, worst
from txbroker.cli.doctor.findings import Findings, named
from txbroker.cli.doctor.group_lag import NO_MEMBERS, Sample, Verdict, committed_offsets, judge, sleep_until
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.errors import ErrorCode, error_name
from txbroker.names import amount
from txbroker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from txbroker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_CONSUMERS = ("consumer", "")  # "": only offsets were committed
_WITH_OFFSETS = ("", "classic", "consumer")


class Groups:
    """Takes the first sample when the sweep begins, so that the other checks run before the second one."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._leaders: Mapping[int, Sequence[Partition]] = {}
        self._states: dict[str, str] = {}
        self._coordinators: dict[int, list[str]] = {}
        self._refused: dict[int, int] = {}  # by broker: its error code
        self._first: dict[str, Sample] = {}

    def first_sample(self, leaders: Mapping[int, Sequence[Partition]]) -> None:
        """List the groups, and take the first sample of each. `leaders`: the partitions by leader."""
        self._leaders = leaders
        for broker in self._asking.brokers:
            answer: ListGroupsResponse | None = self._asking.ask(broker, BlockingConnection.call, ListGroupsRequest())
            if answer is None:
                continue
            if answer.error_code:
                self._refused[broker] = answer.error_code
            groups = [each for each in answer.groups if each.protocol_type in _CONSUMERS and each.group_type.lower() in _WITH_OFFSETS]
            self._coordinators[broker] = sorted(each.group_id for each in groups)
            self._states |= {each.group_id: each.group_state for each in groups}
        self._describe()
        self._first = self._sample({broker: groups for broker, groups in self._coordinators.items() if groups})

    def _describe(self) -> None:
        """The states of groups that ListGroups does not show before version 4."""
        for broker, groups in self._coordinators.items():
            for some in portions([group for group in groups if not self._states[group]], GROUPS_AT_ONCE):
                request = DescribeGroupsRequest(groups=list(some))
                answer: DescribeGroupsResponse | None = self._asking.ask(broker, BlockingConnection.call, request)
                for each in answer.groups if answer is not None else ():
                    self._states[each.group_id] = each.group_state

    def _sample(self, by_coordinator: Mapping[int, Sequence[str]]) -> dict[str, Sample]:
        committed: dict[str, dict[Partition, int]] = {}
        show = self._asking.step("committed offsets of groups")
        for broker, groups in by_coordinator.items():
            for some in portions(groups, GROUPS_AT_ONCE):
                committed |= self._asking.ask(broker, committed_offsets, some) or {}
                show(len(committed), sum(map(len, by_coordinator.values())))
        needed = {each for offsets in committed.values() for each in offsets}
        led = {leader: here for leader, parts in self._leaders.items() if (here := [each for each in parts if each in needed])}
        ends = {each: end.offset for each, end in self._asking.offsets(led).items() if not end.error_code}
        now_s = time.monotonic()
        return {
            group: Sample(now_s, offsets, {each: ends[each] for each in offsets if each in ends}) for group, offsets in committed.items()
        }

    def check(self, findings: Findings, interval_s: float) -> None:
        """Take the second sample of the groups that have members and a lag, and report all."""
        for broker, code in self._refused.items():
            advice = "try again; `txbroker doctor --topic __consumer_offsets` checks the partitions of the groups"
            if code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                advice = "listing groups may need an ACL (Describe on the cluster or the group)"
            findings.warning("groups", f"broker {broker} does not list its groups ({error_name(code)})", advice)
        behind = {group for group, sample in self._first.items() if sample.lag() and self._states[group] not in NO_MEMBERS}
        second: dict[str, Sample] = {}
        if behind:
            sleep_until(max(self._first[group].at_s for group in behind) + interval_s)
            again = {broker: [group for group in groups if group in behind] for broker, groups in self._coordinators.items()}
            second = self._sample({broker: groups for broker, groups in again.items() if groups})
        verdicts = {group: judge(self._states[group], sample, second.get(group)) for group, sample in self._first.items()}
        report(findings, verdicts, {group: (second.get(group) or sample).lag() for group, sample in self._first.items()})


def report(findings: Findings, verdicts: Mapping[str, Verdict], lags: Mapping[str, int]) -> None:
    """One finding for the groups that do not catch up, one for those that need long, or that all is well."""
    sick = Counter({group: lags[group] for group, verdict in verdicts.items() if verdict.sick})
    slow = Counter({group: lags[group] for group, verdict in verdicts.items() if verdict.slow})
    for groups, add, what in ((sick, findings.failed, "do not catch up"), (slow, findings.warning, "catch up slowly")):
        if groups:
            (most, _), *_ = groups.most_common(1)
            texts = [f"{each}: {verdicts[name].sentence}" for each, (name, _) in zip(worst(groups), _in_order(groups), strict=True)]
            found = f"{amount(len(groups), 'group')} of {len(verdicts):,} {what}; records behind: {named(texts)}"
            add("groups", found, f"`txbroker doctor --group {most}` shows more; {verdicts[most].advice}")
    if not sick and not slow:
        total = sum(lags.values())
        behind = f", together {amount(total, 'record')} behind, and they keep up" if total else ", none is behind"
        findings.ok("groups", f"{amount(len(verdicts), 'group')}{behind}" if verdicts else "there are no consumer groups")


def _in_order(groups: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(groups.items(), key=lambda item: (-item[1], item[0]))
