"""Clients that commit offsets of a group, each a higher one than before, and read them back (I8)."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.clients.cluster_client import PASSING, ClusterClient, NotAvailable, check
from simulation.clients.group_errors import COMMIT, COORDINATOR_MOVED
from simulation.histories import Outcome
from simulation.ledger import Ledger
from txbroker.names import TopicPartition
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class CommitterPlan:
    """What one committer does. `pause_s`: the mean time between two commits."""

    group: str
    partition: TopicPartition
    pause_s: float


class Committer:
    """Commits until `finish`, then reads its last commit back."""

    def __init__(self, name: str, client: ClusterClient, plan: CommitterPlan, ledger: Ledger) -> None:
        self.name = name
        self.finishing = False
        self._done = False
        self._client = client
        self._plan = plan
        self._ledger = ledger
        self._coordinator = -1
        self._tried = 0
        self._committed = -1  # nothing

    def start(self) -> None:
        """Begin."""
        self._ledger.run(self.name, self._run())
        self._ledger.run(f"{self.name} fetches beside its commits", self._watch())

    def finish(self) -> None:
        """Read the last commit back, and stop."""
        self.finishing = True

    async def _run(self) -> None:
        chance = self._client.chance
        while not self.finishing:
            await self._client.sleep(chance.expovariate(1 / self._plan.pause_s))
            await self._try(fetch=chance.random() < 0.4)
        while not await self._try(fetch=True):
            pass
        self._done = True

    async def _watch(self) -> None:
        """Fetch while commits are on their way, too: what was fetched once must not go back."""
        while not self.finishing:
            await self._client.sleep(self._client.chance.expovariate(1 / self._plan.pause_s))
            await self._try(fetch=True)

    @property
    def busy(self) -> list[str]:
        """That it has not read its last commit back yet."""
        return [] if self._done else [f"{self.name} cannot read the commits of {self._plan.group}"]

    async def _try(self, *, fetch: bool) -> bool:
        try:
            if self._coordinator < 0:
                self._coordinator = await self._client.coordinator(self._plan.group)
            await (self._fetch() if fetch else self._commit())
        except PASSING:
            self._coordinator = -1
            await self._client.sleep(RETRY_S)
            return False
        return True

    async def _commit(self) -> None:
        self._tried += 1
        offset, began, history = self._tried, self._ledger.history.now(), self._ledger.history
        topic, index = self._plan.partition
        one = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(group_id=self._plan.group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[one])])
        outcome = Outcome.UNKNOWN
        try:
            response = await self._client.send(self._coordinator, request, version_max=8)
            ((answer,),) = (found.partitions for found in response.topics)
            check("OffsetCommit", answer.error_code, COMMIT)
            outcome = Outcome.OK
        finally:
            history.committed(self.name, self._plan.group, self._plan.partition, offset, began, outcome)
        self._committed = offset

    async def _fetch(self) -> None:
        committed, began = self._committed, self._ledger.history.now()
        acting = self._ledger.acting_coordinator(self._plan.group, self._coordinator)
        topic, index = self._plan.partition
        asked = OffsetFetchRequestGroup(group_id=self._plan.group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[index])])
        response = await self._client.send(self._coordinator, OffsetFetchRequest(groups=[asked]), version_max=8)
        (group,) = response.groups
        check("OffsetFetch", group.error_code, COORDINATOR_MOVED)
        ((found,),) = (one.partitions for one in group.topics)
        check("OffsetFetch", found.error_code, ())
        if acting is None or acting != self._ledger.acting_coordinator(self._plan.group, self._coordinator):
            # A coordinator that does not know yet that there is another one answers what it knows, as in Kafka.
            raise NotAvailable("the coordinator may be replaced")
        self._ledger.history.fetched(self.name, self._plan.group, self._plan.partition, found.committed_offset, began)
        if found.committed_offset < committed or found.committed_offset > self._tried:
            text = f"offset {committed} of {self._plan.group} is committed, and {found.committed_offset} is fetched"
            self._ledger.commit_lost(self.name, f"{text} ({self._tried} was the last one tried)")
        self._committed = max(self._committed, found.committed_offset)  # a commit without an answer counts once it was fetched
