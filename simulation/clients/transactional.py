"""Transactional clients: transactions of several partitions that are committed, aborted or abandoned, sometimes with a group's offsets.

A client runs one producer after the other under its transactional id: each is initialized, and works until it is fenced or abandons a
transaction. Several clients may share an id (`rivals`) and fence each other. With a `source` a transaction copies records from there, and
commits the group's next offset of it: read-process-write. Everything is recorded in `transaction_ledger.py`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from simulation.clients.cluster_client import PASSING, ClusterClient, check
from simulation.clients.consumer import Consumer, ConsumerPlan
from simulation.clients.group_errors import COORDINATOR_MOVED
from simulation.clients.transaction_session import Abortable, Fenced, TransactionSession
from simulation.histories import Outcome
from simulation.ledger import Ledger
from simulation.transaction_ledger import Consumed, Sent
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

RETRY_S = 0.2
COPIED_MAX = 3  # records in a transaction


@dataclass(frozen=True, slots=True)
class TransactionalPlan:
    """What the clients of one transactional id do.

    `versions`: of transactions, one is drawn for each producer. `pause_s`: the mean time between two steps. `aborted`, `abandoned`: shares
    of the transactions. `away_s`: the mean time until the next producer begins. `leaves_open`: the last transaction is abandoned, and
    nothing but its timeout ends it.
    """

    transactional_id: str
    partitions: tuple[TopicPartition, ...]
    versions: tuple[int, ...]
    timeout_ms: int
    pause_s: float
    batches_max: int
    aborted: float
    abandoned: float
    away_s: float
    rivals: int = 1
    leaves_open: bool = False
    source: TopicPartition | None = None
    keys: int = 0  # of compacted topics; 0: records have no key

    @property
    def group(self) -> str:
        """The group whose offsets of `source` are committed."""
        return f"{self.transactional_id}-group"


class TransactionalClient:
    """One of the clients of a transactional id; works until `finish`, then ends its transaction."""

    def __init__(self, name: str, client: ClusterClient, plan: TransactionalPlan, ledger: Ledger) -> None:
        self.name = name
        self.plan = plan
        self.finishing = False
        self._done = False
        self._client = client
        self._ledger = ledger
        self._producers = 0
        self._transactions = 0
        self._session: TransactionSession | None = None
        self._reader = Consumer(name, client, ConsumerPlan((), 0.0, 2000, False, 0.0, 0, read_committed=True), ledger)
        self._doing = ""

    def start(self) -> None:
        """Begin."""
        self._ledger.run(self.name, self._run())

    def finish(self) -> None:
        """End the open transaction, or abandon the last one, and stop."""
        self.finishing = True

    @property
    def busy(self) -> list[str]:
        """What it has not ended yet."""
        if self._done:
            return []
        return [f"{self.name} {self._doing}, last problem: {self._session.problem if self._session else 'none'}"]

    async def _run(self) -> None:
        chance, plan = self._client.chance, self.plan
        while True:
            self._producers += 1
            version = chance.choice(plan.versions)
            session = TransactionSession(self.name, self._client, self._ledger, plan.transactional_id, version, plan.timeout_ms)
            self._session = session
            try:
                if await self._produce(session, f"{self.name}-{self._producers}"):
                    break
            except Fenced:
                if self.finishing and plan.rivals > 1:
                    break  # the other one ends what is open
            self._doing = "is away"
            if not self.finishing:
                await self._client.sleep(chance.expovariate(1 / plan.away_s))
        self._done = True

    async def _produce(self, session: TransactionSession, producer: str) -> bool:
        """Work as one producer until it abandons a transaction. True if that was the last one, or all have ended. Fenced."""
        chance, plan = self._client.chance, self.plan
        self._doing = "initializes"
        await session.initialize()
        position = await self._position()
        while True:
            self._doing = "has no transaction"
            leaves = self.finishing and plan.leaves_open
            if self.finishing and not leaves:
                return True
            await self._client.sleep(chance.expovariate(1 / plan.pause_s))
            copied = await self._read(position)
            if copied is not None and not copied and not leaves:
                continue
            self._transactions += 1
            transaction = self._ledger.transactions.begun(f"{producer}-{self._transactions}", producer)
            self._doing = f"is in {transaction.name}"
            try:
                if not await self._work(session, transaction, copied, abandons=leaves or chance.random() < plan.abandoned):
                    return leaves
                commits = chance.random() >= plan.aborted
            except Abortable:
                commits = False
            await self._end(session, transaction, commits=commits)
            if commits:
                position += len(copied or ())

    async def _end(self, session: TransactionSession, transaction: Sent, *, commits: bool) -> None:
        self._doing = f"{'commits' if commits else 'aborts'} {transaction.name}"
        history = self._ledger.history
        began, outcome = history.now(), Outcome.UNKNOWN
        transaction.commit_asked = commits
        try:
            await session.end(commit=commits)
            self._ledger.transactions.ended(transaction, committed=commits)
            outcome = Outcome.OK
        finally:
            history.ended(transaction.producer, transaction.name, began, outcome, committed=commits)

    async def _work(self, session: TransactionSession, transaction: Sent, copied: range | None, *, abandons: bool) -> bool:
        """All of a transaction but its end. False if it is abandoned. Fenced, Abortable."""
        chance, plan = self._client.chance, self.plan
        chosen = [partition for partition in plan.partitions if chance.random() < 0.6] or [chance.choice(plan.partitions)]
        if session.version == 1:
            await session.add_partitions(chosen)
        await self._write(session, transaction, chosen, copied)
        if abandons:
            await self._abandon(session, transaction, chosen, copied)
            return False
        if copied:
            await self._pause()
            await self._commit_offset(session, transaction, copied)
        await self._pause()
        return True

    async def _write(
        self, session: TransactionSession, transaction: Sent, partitions: Sequence[TopicPartition], copied: range | None
    ) -> None:
        """Produce to the partitions, at once. Without a source several times."""
        chance = self._client.chance
        for number in range(1 if copied else chance.randint(1, self.plan.batches_max)):
            await self._pause()
            writes = []
            for partition in partitions:
                texts = [f"{transaction.name}-{partition}-{number}-{i}" for i in copied or range(chance.randint(1, 2))]
                values = [self._keyed(text) for text in texts]
                writes.append(Deferred.fromCoroutine(self._send(session, transaction, partition, values)))
            outcomes: list[tuple[bool, Any]] = await DeferredList(writes, consumeErrors=True)
            for succeeded, outcome in outcomes:
                if not succeeded:
                    outcome.raiseException()

    def _keyed(self, text: str) -> bytes:
        key = f"k{self._client.chance.randrange(self.plan.keys)}" if self.plan.keys else ""
        return f"{key}/{text}".encode()

    async def _send(
        self, session: TransactionSession, transaction: Sent, partition: TopicPartition, values: list[bytes], *, once: bool = False
    ) -> None:
        sender = f"{transaction.producer}/{partition}"
        self._ledger.sent(sender, partition, values, exact=True, keyed=bool(self.plan.keys), transaction=transaction)
        offset = await session.produce(partition, values, once=once)
        if offset is not None:
            transaction.acknowledged.update(values)
            self._ledger.acknowledged(partition, values, offset, all_in_sync=True)

    async def _abandon(
        self, session: TransactionSession, transaction: Sent, partitions: Sequence[TopicPartition], copied: range | None
    ) -> None:
        """Leave the transaction open, perhaps with a request on its way that arrives when the next producer has begun."""
        chance = self._client.chance
        if copied and chance.random() < 0.7:
            await self._commit_offset(session, transaction, copied)
        if chance.random() < 0.5:
            partition = chance.choice(partitions)
            late = self._send(session, transaction, partition, [self._keyed(f"{transaction.name}-{partition}-late")], once=True)
            self._ledger.run(f"{self.name} sends late", _unless_fenced(late))

    async def _commit_offset(self, session: TransactionSession, transaction: Sent, copied: range) -> None:
        plan = self.plan
        if plan.source is not None:
            transaction.consumed = Consumed(plan.group, plan.source, copied.start, copied.stop)
            history = self._ledger.history
            began, outcome = history.now(), Outcome.UNKNOWN
            try:
                await session.commit_offset(plan.group, plan.source, copied.stop)
                outcome = Outcome.OK
            finally:
                history.committed(transaction.producer, plan.group, plan.source, copied.stop, began, outcome, transaction.name)

    async def _pause(self) -> None:
        chance = self._client.chance
        if chance.random() < 0.3:
            await self._client.sleep(chance.expovariate(1 / self.plan.pause_s))

    # Read-process-write

    async def _read(self, position: int) -> range | None:
        """The offsets of the source to copy next, none if it has no further ones; None without a source."""
        if self.plan.source is None:
            return None
        self._ledger.history.assigned(self.name, self.plan.source, position)
        try:
            end = await self._reader.poll(self.plan.source, position)
        except PASSING:
            self._client.forget_leader(self.plan.source)
            end = position
        return range(position, min(end, position + COPIED_MAX))

    async def _position(self) -> int:
        """The group's offset in the source, after all earlier transactions of this id have ended."""
        plan = self.plan
        if plan.source is None:
            return 0
        while True:
            try:
                offset = await self._fetch_offset(plan.group, plan.source)
            except PASSING as error:
                self._doing = f"fetches its offset: {error}"
            else:
                if offset is not None:
                    return max(offset, 0)
            await self._client.sleep(RETRY_S)

    async def _fetch_offset(self, group: str, source: TopicPartition) -> int | None:
        """None from a coordinator that does not know yet that there is another one: it answers what it knows, as in Kafka."""
        began = self._ledger.history.now()
        coordinator = await self._client.coordinator(group)
        acting, least = self._ledger.acting_coordinator(group, coordinator), self._ledger.transactions.committed_offset(group, source)
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=source.topic, partition_indexes=[source.partition])]
        )
        response = await self._client.send(coordinator, OffsetFetchRequest(groups=[asked], require_stable=True), version_max=8)
        (answer,) = response.groups
        found = answer.topics[0].partitions[0] if answer.topics else None
        code = answer.error_code or (found.error_code if found else 0)
        check("OffsetFetch", code, COORDINATOR_MOVED | {ErrorCode.UNSTABLE_OFFSET_COMMIT})
        if acting is None or acting != self._ledger.acting_coordinator(group, coordinator) or found is None:
            return None
        offset: int = found.committed_offset
        self._ledger.history.fetched(self.name, group, source, offset, began)
        self._ledger.transactions.next_offset(group, source, offset, least, self.name)
        return offset


async def _unless_fenced(work: Coroutine[Any, Any, None]) -> None:
    with suppress(Fenced, Abortable):
        await work
