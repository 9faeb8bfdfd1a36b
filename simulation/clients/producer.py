"""Producers: each partition gets a stream of unique values, in order.

An idempotent producer sends a batch again until it is acknowledged. As Kafka's clients do, it has several batches in flight to a broker,
and sends new ones to a new leader while the previous one has not answered. A batch that has failed is sent again as soon as all
earlier ones are acknowledged, and no new one before it. On a compacted topic the leader may refuse a repeated batch after
`REPEATABLE` newer ones, as a cleaned log no longer knows it. The producer drops it then, which Kafka's client does at delivery.timeout.ms:
it may have been in the log or not.
Any other producer sends each batch once: what becomes of it after an error is not known.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from simulation.clients.cluster_client import PASSING, ClusterClient, NotAvailable, check
from simulation.clients.contents import record
from simulation.ledger import Ledger
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.records import build

RETRY_S = 0.1
SEQUENCES = 2**31
UNSENT_MAX = 5  # batches that wait until they may be sent; then the producer makes no new ones
REFRESHED = 0.05  # how likely a producer asks for the leader before a batch, as clients do now and then
NOWHERE = -1
REPEATABLE = 10  # BATCHES_REMEMBERED of `log/producers.py`, which deliberate bugs change

# After these the batch is certainly not in the log, or the client has to find another leader: it sends the batch again.
RETRIABLE = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION,
})  # fmt: skip
_NO_IDS = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


@dataclass(slots=True)
class Batch:
    """`sequence`: of its first record, -1 without idempotence. `sent`: how often. `broker`: in flight to it, or NOWHERE.

    `number`: in the order in which batches of one partition were first sent.
    """

    values: list[bytes]
    sequence: int
    sent: int = 0
    broker: int = NOWHERE
    number: int = 0


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """What one producer does. `in_flight`: batches of a partition to a broker. `pause_s`: the mean time between two of its batches."""

    partitions: tuple[TopicPartition, ...]
    acks: int
    idempotent: bool
    in_flight: int
    pause_s: float
    records_max: int
    keys: int = 0  # of compacted topics; 0: records have no key
    tombstones: float = 0.0  # the share of records without a value; what would be the value is a header
    latest: bool = True  # the latest record of each key stays
    restarts: float = 0.0  # how likely an idempotent producer takes a new producer id before a batch, if nothing is unacknowledged


class Producer:
    """`busy`: batches without a result yet. After `finish` it sends no new ones."""

    def __init__(self, name: str, client: ClusterClient, plan: ProducerPlan, ledger: Ledger) -> None:
        self.name = name
        self.plan = plan
        self.finishing = False
        self.acknowledged = 0
        self._client = client
        self._ledger = ledger
        self._lanes = [_Lane(self, client, ledger, partition) for partition in plan.partitions]

    def start(self) -> None:
        """Begin."""
        for lane in self._lanes:
            self._ledger.run(f"{self.name} for {lane.partition}", lane.run())

    def refresh(self) -> None:
        """Ask for the leaders again, as clients do at any time."""
        for lane in self._lanes:
            lane.look()

    @property
    def busy(self) -> list[str]:
        """The partitions with unacknowledged batches."""
        return [f"{self.name}: {len(lane.unacknowledged)} of {lane.partition}, last error {lane.problem}"
                for lane in self._lanes if lane.unacknowledged]  # fmt: skip

    def finish(self) -> None:
        """Only repeat what is not acknowledged."""
        self.finishing = True


class _Lane:
    """One partition of a producer, with a producer id of its own."""

    def __init__(self, producer: Producer, client: ClusterClient, ledger: Ledger, partition: TopicPartition) -> None:
        self.partition = partition
        self.unacknowledged: deque[Batch] = deque()
        self.problem = ""
        self._producer = producer
        self._plan = producer.plan
        self._client = client
        self._ledger = ledger
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequence = 0
        self._count = 0
        self._begun = 0  # batches that were sent, once or more often
        self._retry = False  # a pause before the next attempt
        self._looking = False  # for the leader
        self._changed: Deferred[None] | None = None

    async def run(self) -> None:
        chance, plan = self._client.chance, self._plan
        if plan.idempotent:
            await self._begin_idempotence()
        while not self._producer.finishing:
            await self._client.sleep(chance.expovariate(1 / plan.pause_s))
            if self._producer.finishing:
                break
            if plan.restarts and plan.idempotent and not self.unacknowledged and chance.random() < plan.restarts:
                await self._begin_idempotence()
                if self._producer.finishing:
                    break
            batch = self._next_batch()
            self.unacknowledged.append(batch)
            if not plan.idempotent:
                await self._send(batch)
                self.unacknowledged.clear()
                continue
            if chance.random() < REFRESHED:
                self.look()
            self._send_next()
            while sum(each.broker == NOWHERE for each in self.unacknowledged) >= UNSENT_MAX:
                self._changed = Deferred()
                await self._changed

    async def _begin_idempotence(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        while True:
            try:
                response = await self._client.send(self._client.chance.choice(self._client.broker_ids), request, version_max=4)
                check("InitProducerId", response.error_code, _NO_IDS)
            except PASSING as error:
                self.problem = str(error)
            else:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                self._sequence = 0
                self._ledger.new_producer(response.producer_id)
                return
            await self._client.sleep(RETRY_S)

    def _next_batch(self) -> Batch:
        chance, plan = self._client.chance, self._plan
        values = []
        for _ in range(chance.randint(1, plan.records_max)):
            self._count += 1
            key = f"k{chance.randrange(plan.keys)}" if plan.keys else ""
            values.append(f"{key}/{self._producer.name}-{self.partition}-{self._count:05}".encode())
        batch = Batch(values, self._sequence if plan.idempotent else -1)
        self._sequence = (self._sequence + len(values)) % SEQUENCES
        name = f"{self._producer.name}/{self.partition}"
        self._ledger.sent(name, self.partition, values, exact=plan.idempotent, keyed=bool(plan.keys) and plan.latest)
        return batch

    # Idempotent producers

    @property
    def _leader(self) -> int:
        return self._client.leaders.get(self.partition, (NOWHERE, 0))[0]

    def _send_next(self) -> None:
        """Send what may be sent now, in the order of sequences (Kafka's RecordAccumulator.shouldStopDrainBatchesForPartition)."""
        while not self._retry:
            batch = next((each for each in self.unacknowledged if each.broker == NOWHERE), None)
            if batch is None or (batch.sent and batch is not self.unacknowledged[0]):
                return
            leader = self._leader
            if leader == NOWHERE:
                self.look()
                return
            in_flight = sum(each.broker == leader for each in self.unacknowledged)
            # Until there is a connection the first batch waits for it: others might be sent before.
            if in_flight >= (self._plan.in_flight if self._client.is_connected(leader) else 1):
                return
            batch.broker = leader
            self._ledger.run(f"{self._producer.name} sends to {self.partition}", self._deliver(batch))

    async def _deliver(self, batch: Batch) -> None:
        done = await self._send(batch)
        batch.broker = NOWHERE
        if not done:
            self._ledger.run(f"{self._producer.name} waits", self._pause())
        self._go_on()

    async def _pause(self) -> None:
        if not self._retry:
            self._retry = True
            await self._client.sleep(RETRY_S * (0.5 + self._client.chance.random()))
            self._retry = False
            self._go_on()

    def look(self) -> None:
        """Ask for the leader, unless that goes on already."""
        if not self._looking:
            self._looking = True
            self._ledger.run(f"{self._producer.name} looks for the leader of {self.partition}", self._refresh())

    async def _refresh(self) -> None:
        try:
            await self._client.refresh([self.partition.topic])
        except PASSING as error:
            self.problem = str(error)
        if self.partition not in self._client.leaders:
            await self._client.sleep(RETRY_S)
        self._looking = False
        self._go_on()

    def _go_on(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            self._client.process.callLater(0, changed.callback, None)
        self._send_next()

    async def _send(self, batch: Batch) -> bool:
        """Send a batch; whether it is acknowledged or dropped, and then no longer in `unacknowledged`."""
        try:
            if not batch.sent:
                self._begun += 1
                batch.number = self._begun
            batch.sent += 1
            return await self._exchange(batch)
        except PASSING as error:
            self.problem = str(error)
            if batch.broker == self._leader or not self._plan.idempotent:
                self._client.forget_leader(self.partition)
            return False

    async def _exchange(self, batch: Batch) -> bool:
        plan, (topic, index) = self._plan, self.partition
        is_oldest = batch is self.unacknowledged[0]
        leader = batch.broker if plan.idempotent else (await self._client.leader(self.partition))[0]
        timestamp = self._ledger.now_ms()
        records = build(
            [record(i, timestamp, value, plan.tombstones) for i, value in enumerate(batch.values)],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.sequence,
        )
        request = ProduceRequest(
            acks=plan.acks,
            timeout_ms=1500,
            topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])],
        )
        response = await self._client.send(leader, request, version_max=12)
        ((answer,),) = (topic.partition_responses for topic in response.responses)
        if answer.error_code == ErrorCode.NONE or (answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and plan.idempotent):
            if batch in self.unacknowledged:
                self.unacknowledged.remove(batch)
            self._producer.acknowledged += len(batch.values)
            self._ledger.acknowledged(
                self.partition, batch.values, answer.base_offset if not answer.error_code else -1, all_in_sync=plan.acks == -1
            )
            return True
        self.problem = ErrorCode(answer.error_code).name
        if answer.error_code in RETRIABLE:
            raise NotAvailable(self.problem)
        if plan.idempotent and answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_oldest:
            return False  # the batch before it has failed
        if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and plan.idempotent:
            if not self._ledger.leads(self.partition, leader):
                raise NotAvailable(self.problem)  # another broker leads, and this one does not know it yet: its log may lack batches
            if plan.keys and batch.sent > 1 and self._begun - batch.number >= REPEATABLE:
                self.unacknowledged.remove(batch)
                return True
        self._ledger.refused(self._producer.name, self.partition, batch.sequence, self.problem)
        return False
