"""The load of `perf-produce`: batches to the leaders of a topic's partitions, as many requests in flight as the settings allow.

A batch is built when a request can take it, from the records that are due by then: all of them without --throughput, otherwise those
that the schedule has reached, once they fill a batch or the first of them has waited for linger.ms. Latency counts from when a record
is due to its acknowledgement; a broker that falls behind therefore shows in it.

Each partition sends its batches in order. A batch that failed with a retriable error is sent again before anything else goes to its
partition; with idempotence under its old sequence number, when nothing of that partition is in flight any more.

With transactions no batch is built from the end of a transaction's time until all of its batches are acknowledged and it is committed.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from txbroker.cli.perf.batches import Source, batch
from txbroker.cli.perf.settings import ProducerSettings
from txbroker.cli.perf.transactions import Transactions
from txbroker.client.client_errors import LOST, ConnectionFailed, RequestFailed
from txbroker.client.client_machine import ClientSettings, Completed
from txbroker.client.pipelined_connection import PipelinedConnection
from txbroker.client.topic_leaders import RETRIABLE, Broker
from txbroker.client.topic_metadata import TopicMetadata
from txbroker.console.failures import CommandFailed, broker_error, warn
from txbroker.errors import ErrorCode
from txbroker.wire.compression import Codec
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

Acknowledged = Callable[["Batch", float], None]
SEQUENCES = 2**31
WARN_EVERY_S = 5.0  # of the reasons why batches are sent again
CHECK_EVERY_S = 0.1
REFRESH_AGAIN_S = 0.05
WAIT_S_MAX = 0.5
FIRST_CONNECTION_S = 15.0


@dataclass(slots=True)
class Batch:
    """`count` records from number `first` of the load on. `due_s`, `last_due_s`: when its first and last record were due."""

    data: bytearray
    first: int
    count: int
    value_bytes: int
    due_s: float
    last_due_s: float
    built_s: float


@dataclass(slots=True)
class _Partition:
    index: int
    leader: Broker | None
    sequence: int = 0
    in_flight: int = 0
    acknowledged: bool = False
    """Whether the broker knows our sequence. Until then batches are sent one at a time: a broker accepts any number as the first one."""
    retries: list[Batch] = field(default_factory=list)
    """Batches to send again, oldest first."""

    @property
    def idle(self) -> bool:
        return not self.in_flight and not self.retries


_Chosen = Sequence[tuple[_Partition, Batch]]
"""The batches of one request."""


class Schedule:
    """When each record is due: `throughput` records a second from `start_s` on, or all at once."""

    def __init__(self, records: int, throughput: float, start_s: float) -> None:
        self.records = records
        self._interval_s = 1 / throughput if throughput > 0 else 0.0
        self._start_s = start_s

    def due(self, now_s: float) -> int:
        """How many records are due."""
        if not self._interval_s:
            return self.records
        return min(self.records, int((now_s - self._start_s) / self._interval_s) + 1)

    def due_s(self, record: int, now_s: float) -> float:
        """When a record is due; without --throughput that is when it is taken: now."""
        return self._start_s + record * self._interval_s if self._interval_s else now_s


class Sender:
    """Sends `records` records of `source`; calls `acknowledged` for each batch that was acknowledged."""

    def __init__(
        self,
        topic: TopicMetadata,
        settings: ProducerSettings,
        source: Source,
        records: int,
        throughput: float,
        acknowledged: Acknowledged,
        transactions: Transactions | None = None,
    ) -> None:
        self.settings = settings
        self._transactions = transactions
        self._client_settings = ClientSettings(
            settings.client_id, request_timeout_s=settings.request_timeout_s, in_flight_max=settings.in_flight, security=settings.security
        )
        self._topic = topic
        self._source = source
        self._codec = Codec[settings.codec.upper()]
        self._acknowledged = acknowledged
        topic.check_supported(ProduceRequest)
        leaders = topic.leaders()
        self._topic_id = leaders.topic_id
        self._partitions = [_Partition(index, leader) for index, leader in leaders.by_partition.items()]
        self._leaders = self._all_leaders()
        self._producer_id, self._producer_epoch = self._init_producer_id() if settings.idempotent else (-1, -1)
        self._connections: dict[Broker, PipelinedConnection[_Chosen]] = {}
        self._selector = selectors.DefaultSelector()
        self._requests = self._retries = self._connects = 0
        self._built = 0
        self._batches = 0
        self._next_partition = 0
        self._refresh_at_s: float | None = None
        self._problem = CommandFailed("")  # why batches are sent again
        self._warn_s = 0.0  # when the next such reason is printed
        self._next_check_s = 0.0
        self.start_s = time.monotonic()
        self._schedule = Schedule(records, throughput, self.start_s)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._selector.close()
        if self._transactions is not None:
            self._transactions.close()

    def run(self) -> None:
        """Send everything, and wait until it is acknowledged; CommandFailed or ClientError for an error that is not retriable."""
        while self._built < self._schedule.records or not self._idle or self._unsent():
            now_s = time.monotonic()
            self._refresh_leaders(now_s)
            if self._transactions is not None and self._transactions.left_s(now_s) <= 0 and self._idle:
                self._commit(self._transactions)
            wait_s = self._send_all(now_s)
            for key, events in self._selector.select(wait_s):
                self._serve(key.data, events)
            self._check_deadlines(time.monotonic())
        if self._transactions is not None and self._transactions.is_open:
            self._commit(self._transactions)

    def counts(self) -> dict[str, int]:
        """Requests, batches, batches that were sent again, and connections; with transactions how many were committed."""
        counts = {"requests": self._requests, "batches": self._batches, "retries": self._retries, "connections": self._connects}
        return counts if self._transactions is None else {**counts, "transactions": self._transactions.committed}

    @property
    def _idle(self) -> bool:
        return all(partition.idle for partition in self._partitions)

    def _commit(self, transactions: Transactions) -> None:
        """Commit; if the producer has another epoch then, its sequence numbers begin at 0."""
        transactions.commit()
        producer = transactions.producer
        if (producer.producer_id, producer.epoch) != (self._producer_id, self._producer_epoch):
            for partition in self._partitions:
                partition.sequence = 0
                partition.acknowledged = partition.acknowledged and producer.producer_id == self._producer_id
            self._producer_id, self._producer_epoch = producer.producer_id, producer.epoch

    def _init_producer_id(self) -> tuple[int, int]:
        if self._transactions is not None:
            producer = self._transactions.producer
            producer.initialize(self.settings.transaction_timeout_ms)
            return producer.producer_id, producer.epoch
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)

        def attempt() -> int | InitProducerIdResponse:
            answer: InitProducerIdResponse = self._topic.call(request)
            return answer.error_code or answer

        given = self._topic.retry(attempt, "the broker did not assign a producer id")
        return given.producer_id, given.producer_epoch

    # --- requests ---

    def _send_all(self, now_s: float) -> float:
        """Send all that can be sent now; for how long to wait for events then."""
        sent = True
        while sent:
            sent = False
            for leader in self._leaders:
                connection = self._connections.get(leader) or self._connect(leader, now_s)
                if connection is None or connection.machine.unsent or not connection.machine.ready:
                    continue
                chosen = self._choose(leader, now_s)
                if chosen:
                    self._send(connection, leader, chosen, now_s)
                    sent = True
        wait_s = WAIT_S_MAX
        left_s = self._transaction_left_s(now_s)
        if self._built < self._schedule.records and left_s > 0:
            wait_s = min(wait_s, left_s, self._ready_in(now_s))
        if self._refresh_at_s is not None:
            wait_s = min(wait_s, self._refresh_at_s - now_s)
        return max(wait_s, 0.0)

    def _transaction_left_s(self, now_s: float) -> float:
        """How long batches may be added to the present transaction."""
        return float("inf") if self._transactions is None else self._transactions.left_s(now_s)

    def _ready_in(self, now_s: float) -> float:
        """When the next batch is full or has waited for linger.ms."""
        capacity = self._source.capacity(self._batches)
        full_s = self._schedule.due_s(min(self._built + capacity, self._schedule.records) - 1, now_s)
        lingered_s = self._schedule.due_s(self._built, now_s) + self.settings.linger_s
        ready_s = min(full_s, lingered_s) - now_s
        # A batch that is ready and was not sent waits for a connection or a leader, whose event ends the wait.
        return ready_s if ready_s > 0 else WAIT_S_MAX

    def _choose(self, leader: Broker, now_s: float) -> list[tuple[_Partition, Batch]]:
        """The batches of one request: at most one for each partition, retries first, starting with another partition each time."""
        chosen: list[tuple[_Partition, Batch]] = []
        size = 0
        count = len(self._partitions)
        start = self._next_partition
        for step in range(count):
            partition = self._partitions[(start + step) % count]
            if partition.leader != leader:
                continue
            if partition.retries:
                # Alone in flight: a broker accepts sequence numbers only in order.
                next_batch = partition.retries[0] if not partition.in_flight and self._refresh_at_s is None else None
                if next_batch is not None:
                    del partition.retries[0]
            else:
                next_batch = self._build(partition, now_s)
            if next_batch is None:
                continue
            chosen.append((partition, next_batch))
            self._next_partition = (start + step + 1) % count
            size += len(next_batch.data)
            if size + self.settings.batch_bytes > self.settings.request_bytes:
                break
        return chosen

    def _build(self, partition: _Partition, now_s: float) -> Batch | None:
        """The next batch; None until enough records are due."""
        if self.settings.idempotent and partition.in_flight and not partition.acknowledged:
            return None
        if self._transaction_left_s(now_s) <= 0:
            return None
        first = self._built
        capacity = self._source.capacity(self._batches)
        count = min(self._schedule.due(now_s) - first, capacity)
        due_s = self._schedule.due_s(first, now_s)
        full = count == capacity or first + count == self._schedule.records
        if count <= 0 or (not full and now_s - due_s < self.settings.linger_s):
            return None
        transactions = self._transactions
        if transactions is not None and not transactions.is_open:
            transactions.begin(self._topic.topic, [each.index for each in self._partitions], now_s)
        payload = self._source.payload(self._batches, first, count)
        sequence = partition.sequence if self.settings.idempotent else -1
        now_ms = int(time.time() * 1000)
        data = batch(
            payload, self._codec, now_ms, self._producer_id, self._producer_epoch, sequence, transactional=transactions is not None
        )
        partition.sequence = (partition.sequence + count) % SEQUENCES
        self._built += count
        self._batches += 1
        return Batch(data, first, count, payload.value_bytes, due_s, self._schedule.due_s(first + count - 1, now_s), now_s)

    def _send(self, connection: PipelinedConnection[_Chosen], leader: Broker, chosen: _Chosen, now_s: float) -> None:
        data = [PartitionProduceData(index=partition.index, records=each.data) for partition, each in chosen]
        topics = [TopicProduceData(name=self._topic.topic, topic_id=self._topic_id, partition_data=data)]
        timeout_ms = int(self.settings.request_timeout_s * 1000)
        transactions = self._transactions
        request = ProduceRequest(
            transactional_id=None if transactions is None else transactions.producer.transactional_id,
            acks=self.settings.acks,
            timeout_ms=timeout_ms,
            topic_data=topics,
        )
        version_max = None if transactions is None else transactions.producer.produce_version_max
        self._requests += 1
        for partition, _ in chosen:
            partition.in_flight += 1
        acks = self.settings.acks != 0
        lost = None
        try:
            connection.send(request, chosen, now_s, version_max=version_max, response_expected=acks)
        except LOST as problem:
            lost = problem
        if not acks:
            self._count_unacknowledged(chosen)
        if lost is not None:
            self._lost(leader, lost)
        else:
            self._watch(connection, leader)

    def _count_unacknowledged(self, chosen: _Chosen) -> None:
        """With acks=0 a batch counts as done once it is in the socket's buffer."""
        now_s = time.monotonic()
        for partition, each in chosen:
            partition.in_flight -= 1
            self._acknowledged(each, now_s)

    # --- responses ---

    def _handle(self, completed: Completed[_Chosen]) -> None:
        """The response to a request with these batches."""
        now_s = time.monotonic()
        response: ProduceResponse = completed.response()
        results = {partition.index: partition for topic in response.responses for partition in topic.partition_responses}
        for partition, each in completed.context:
            partition.in_flight -= 1
            result = results.get(partition.index)
            if result is None:
                raise CommandFailed(f"the broker's response lacks partition {partition.index} of {self._topic.topic}; see the broker's log")
            code = result.error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):  # a duplicate: the first attempt was written
                partition.acknowledged = True
                self._acknowledged(each, now_s)
            elif code in RETRIABLE or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition.retries):
                refused = broker_error(f"partition {partition.index} of {self._topic.topic}", code, result.error_message)
                self._retry(partition, each, refused, now_s)
            else:
                what = f"records were not written to partition {partition.index} of {self._topic.topic}"
                raise RequestFailed(what, code, result.error_message)

    def _retry(self, partition: _Partition, failed: Batch, problem: CommandFailed, now_s: float) -> None:
        """Send it again, after the leaders are known again."""
        self._retries += 1
        if now_s >= self._warn_s:
            self._warn_s = now_s + WARN_EVERY_S
            warn(f"{problem}; sending the records again")
        partition.retries = sorted([*partition.retries, failed], key=lambda each: each.first)
        self._problem = problem
        if self._refresh_at_s is None:
            self._refresh_at_s = now_s + self.settings.backoff_s

    def _serve(self, leader: Broker, events: int) -> None:
        connection = self._connections.get(leader)
        if connection is None:
            return
        try:
            if events & selectors.EVENT_WRITE:
                connection.write()
            if events & selectors.EVENT_READ:
                for completed in connection.read():
                    self._handle(completed)
        except LOST as problem:
            self._lost(leader, problem)
            return
        self._watch(connection, leader)

    # --- connections and leaders ---

    def _connect(self, leader: Broker, now_s: float) -> PipelinedConnection[_Chosen] | None:
        if self._refresh_at_s is not None:
            return None  # the leaders may be other brokers
        try:
            connection: PipelinedConnection[_Chosen] = PipelinedConnection(
                leader, self._client_settings, now_s, self.settings.send_buffer, self.settings.receive_buffer
            )
        except LOST as problem:
            self._connection_failed(problem, now_s)
            return None
        self._connections[leader] = connection
        self._connects += 1
        self._selector.register(connection.socket, connection.events, leader)
        return connection

    def _connection_failed(self, problem: ConnectionFailed, now_s: float) -> None:
        """Try again; CommandFailed for a leader that was never reached: its advertised address does not work from here."""
        self._problem = _lost_connection(problem)
        if self._refresh_at_s is None:
            self._refresh_at_s = now_s + self.settings.backoff_s
        if not self._built and now_s - self.start_s > FIRST_CONNECTION_S:
            raise CommandFailed(str(problem))

    def _watch(self, connection: PipelinedConnection[_Chosen], leader: Broker) -> None:
        if self._selector.get_key(connection.socket).events != connection.events:
            self._selector.modify(connection.socket, connection.events, leader)

    def _lost(self, leader: Broker, problem: ConnectionFailed) -> None:
        """Send again what was in flight there."""
        connection = self._connections.pop(leader)
        self._selector.unregister(connection.socket)
        connection.close()
        now_s = time.monotonic()
        for request in connection.machine.disconnected(now_s):
            for partition, each in request.context:
                partition.in_flight -= 1
                self._retry(partition, each, _lost_connection(problem), now_s)
        self._connection_failed(problem, now_s)

    def _refresh_leaders(self, now_s: float) -> None:
        """Ask for the leaders again, when it is time."""
        if self._refresh_at_s is None or now_s < self._refresh_at_s:
            return
        again_s = max(self.settings.backoff_s, REFRESH_AGAIN_S)
        found = self._topic.refresh()
        if found is None:
            self._refresh_at_s = time.monotonic() + again_s
            return
        self._refresh_at_s = None if found.complete else now_s + again_s
        self._topic_id = found.topic_id  # another one, if the topic was recreated
        for partition in self._partitions:
            partition.leader = found.by_partition.get(partition.index)
        self._leaders = self._all_leaders()

    def _all_leaders(self) -> list[Broker]:
        return [leader for leader in dict.fromkeys(partition.leader for partition in self._partitions) if leader is not None]

    def _unsent(self) -> bool:
        return any(connection.machine.unsent for connection in self._connections.values())

    def _check_deadlines(self, now_s: float) -> None:
        """A connection without a response in time is closed; a batch older than delivery.timeout.ms ends the command."""
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + CHECK_EVERY_S
        for leader, connection in list(self._connections.items()):
            try:
                connection.check(now_s)
            except LOST as problem:
                self._lost(leader, problem)
        for partition in self._partitions:
            if partition.retries and now_s - partition.retries[0].built_s > self.settings.delivery_timeout_s:
                within = f"within delivery.timeout.ms ({self.settings.delivery_timeout_s:.0f} s)"
                raise CommandFailed(f"records were not acknowledged {within}: {self._problem}", self._problem.code)


def _lost_connection(problem: ConnectionFailed) -> CommandFailed:
    return CommandFailed(f"{problem}; check that the broker runs")
