"""What members of groups were assigned and have committed: in one generation each partition has one member, and offsets never go back (I8).

For each group there are the partitions of each member in each generation whose assignment it was given, and for each partition the
highest offset that a commit was acknowledged for or that was fetched, and the highest one that was tried. Members commit ascending
offsets, beginning above the one that they fetch when a partition is assigned to them; so only a fencing that fails makes one go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from txbroker.names import TopicPartition


class GroupLedger:
    """Of one run. `report(invariant, text)` ends the run."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._assigned: dict[tuple[str, int, str], frozenset[TopicPartition]] = {}
        self._generations: dict[str, int] = {}
        self._known: dict[tuple[str, TopicPartition], int] = {}
        self._tried: dict[tuple[str, TopicPartition], int] = {}

    def generation(self, group: str) -> int:
        """The newest generation whose assignment some member was given; 0 for none."""
        return self._generations.get(group, 0)

    def synced(self, group: str, generation: int, member: str, partitions: Iterable[TopicPartition], before: int) -> None:
        """SyncGroup was answered. `before`: the newest generation when this member joined, 0 if the coordinator may be replaced."""
        assigned = frozenset(partitions)
        if generation < before:
            self._report("I8", f"{member} is in generation {generation} of {group}, and generation {before} was there before it joined")
        if self._assigned.setdefault((group, generation, member), assigned) != assigned:
            self._report(
                "I8", f"{member} is assigned {sorted(assigned)} in generation {generation} of {group}, and other partitions before"
            )
        for partition in sorted(assigned):
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                self._report("I8", f"{member} and {owner} are both assigned {partition} in generation {generation} of {group}")
        self._generations[group] = max(generation, self.generation(group))

    def known(self, group: str, partition: TopicPartition) -> int:
        """The offset that a fetch must return at least; -1 for none."""
        return self._known.get((group, partition), -1)

    def trying(self, group: str, partition: TopicPartition, offset: int) -> None:
        """A commit is about to be sent."""
        self._tried[group, partition] = max(offset, self._tried.get((group, partition), -1))

    def accepted(self, group: str, generation: int, newest: int, member: str) -> None:
        """A commit of a generation is acknowledged. `newest`: the result of `generation` when it was sent."""
        if generation < newest:
            self._report("I8", f"{member} has committed in generation {generation} of {group}, after generation {newest} had begun")

    def committed(self, group: str, partition: TopicPartition, offset: int) -> None:
        """A commit is acknowledged."""
        self._known[group, partition] = max(offset, self.known(group, partition))

    def fetched(self, group: str, partition: TopicPartition, offset: int, before: int, member: str) -> None:
        """A committed offset was fetched. `before`: the result of `known` when it was asked for."""
        if not before <= offset <= self._tried.get((group, partition), -1):
            tried = self._tried.get((group, partition), -1)
            text = f"{member}: offset {before} of {group} for {partition} is committed, and {offset} is fetched"
            self._report("I8", f"{text} ({tried} was the last one tried)")
        self.committed(group, partition, offset)
