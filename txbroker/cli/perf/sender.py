"""The load of `perf-produce`: batches to the leaders of a topic's partitions, as many requests in flight as the settings allow.

A batch is made when a request can take it, of the records whose turn has come by then: all of them without --throughput, otherwise those
that are due by the clock, once they fill a batch or the first of them has waited for linger.ms. Latency counts from a record's
turn to its acknowledgement; a broker that falls behind therefore shows in it.

Each partition sends its batches in order. What failed in a way that passes is sent again, before anything else goes there; with
idempotence under its old sequence number, when nothing of that partition is in flight any more.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from txbroker.cli.failures import CommandFailed, broker_error
from txbroker.cli.perf.batches import Source, batch
from txbroker.cli.perf.settings import ProducerSettings
from txbroker.client.blocking import LinkFailed
from txbroker.client.pipelined import Channel
from txbroker.client.topic_leaders import PASSING, Broker, Leaders, Topic
from txbroker.errors import ErrorCode
from txbroker.wire.codec import decode, encode
from txbroker.wire.compression import Codec
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

Acknowledged = Callable[["Batch", float], None]
SEQUENCES = 2**31
CHECK_EVERY_S = 0.1


@dataclass(slots=True)
class Batch:
    """Records from `first` on, on their way. `due_s`, `last_due_s`: when the turns of its first and last record came."""

    data: bytearray
    first: int
    count: int
    value_bytes: int
    due_s: float
    last_due_s: float
    made_s: float


@dataclass(slots=True)
class _Partition:
    index: int
    leader: Broker | None
    sequence: int = 0
    in_flight: int = 0
    begun: bool = False
    """Whether the broker knows our sequence here. Until then batches go one at a time: it takes any number as the first one."""
    again: list[Batch] = field(default_factory=list)
    """Those to be sent again, oldest first."""

    @property
    def idle(self) -> bool:
        return not self.in_flight and not self.again


class Schedule:
    """When the turn of each record comes: `throughput` records a second from `start_s`, or all at once."""

    def __init__(self, records: int, throughput: float, start_s: float) -> None:
        self.records = records
        self._interval_s = 1 / throughput if throughput > 0 else 0.0
        self._start_s = start_s

    def due(self, now_s: float) -> int:
        """How many records' turn has come."""
        if not self._interval_s:
            return self.records
        return min(self.records, int((now_s - self._start_s) / self._interval_s) + 1)

    def due_s(self, record: int, now_s: float) -> float:
        """When a record's turn came: by the clock, or as it is taken now."""
        return self._start_s + record * self._interval_s if self._interval_s else now_s


class Sender:
    """Sends `records` records of `source`; tells each batch that was acknowledged."""

    def __init__(
        self, topic: Topic, settings: ProducerSettings, source: Source, records: int, throughput: float, acknowledged: Acknowledged
    ) -> None:
        self.settings = settings
        self._topic = topic
        self._source = source
        self._codec = Codec[settings.codec.upper()]
        self._acknowledged = acknowledged
        self._version = topic.version_of(ProduceRequest)
        leaders = topic.leaders()
        self._topic_id = leaders.topic_id
        self._partitions = [_Partition(index, leader) for index, leader in leaders.by_partition.items()]
        self._leaders = self._all_leaders()
        self._producer_id, self._producer_epoch = self._identity() if settings.idempotent else (-1, -1)
        self._channels: dict[Broker, Channel] = {}
        self._selector = selectors.DefaultSelector()
        self._requests = self._retries = self._connections = 0
        self._made = 0
        self._batches = 0
        self._next_partition = 0
        self._look_at_s: float | None = None
        self._problem = ""
        self._next_check_s = 0.0
        self.start_s = time.perf_counter()
        self._schedule = Schedule(records, throughput, self.start_s)

    def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()
        self._selector.close()

    def run(self) -> None:
        """Send everything, and wait for it to be acknowledged; CommandFailed at what does not pass."""
        while self._made < self._schedule.records or not all(partition.idle for partition in self._partitions) or self._unsent():
            now_s = time.perf_counter()
            self._look(now_s)
            wait_s = self._send_all(now_s)
            for key, events in self._selector.select(wait_s):
                self._serve(key.data, events)
            self._check_times(time.perf_counter())

    def counts(self) -> dict[str, int]:
        """Requests, batches, and batches that were sent again."""
        return {"requests": self._requests, "batches": self._batches, "retries": self._retries, "connections": self._connections}

    def _identity(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)

        def attempt() -> int | InitProducerIdResponse:
            answer = self._topic.call(request)
            assert isinstance(answer, InitProducerIdResponse)
            return answer.error_code or answer

        given = self._topic.until_it_passes(attempt, "no producer id was given")
        return given.producer_id, given.producer_epoch

    # --- what goes out ---

    def _send_all(self, now_s: float) -> float:
        """Send whatever can be sent now; for how long nothing else will come by itself."""
        sent = True
        while sent:
            sent = False
            for leader in self._leaders:
                channel = self._channels.get(leader) or self._connect(leader, now_s)
                if channel is None or channel.unsent or len(channel.waiting) >= self.settings.in_flight:
                    continue
                chosen = self._choose(leader, now_s)
                if chosen:
                    self._send(channel, leader, chosen, now_s)
                    sent = True
        wait_s = 0.5
        if self._made < self._schedule.records:
            wait_s = min(wait_s, self._ready_in(now_s))
        if self._look_at_s is not None:
            wait_s = min(wait_s, self._look_at_s - now_s)
        return max(wait_s, 0.0)

    def _ready_in(self, now_s: float) -> float:
        """When the next batch is full or has waited for long enough: unless something else has to happen first."""
        capacity = self._source.capacity(self._batches)
        full_s = self._schedule.due_s(min(self._made + capacity, self._schedule.records) - 1, now_s)
        lingered_s = self._schedule.due_s(self._made, now_s) + self.settings.linger_s
        ready_s = min(full_s, lingered_s) - now_s
        # Ready and not sent: a slot or a leader is missing, and what brings it wakes us.
        return ready_s if ready_s > 0 else 0.5

    def _choose(self, leader: Broker, now_s: float) -> list[tuple[_Partition, Batch]]:
        """The batches of one request: one a partition, first those to be sent again, in turn over the partitions."""
        chosen: list[tuple[_Partition, Batch]] = []
        size = 0
        count = len(self._partitions)
        start = self._next_partition
        for step in range(count):
            partition = self._partitions[(start + step) % count]
            if partition.leader != leader:
                continue
            if partition.again:
                # One at a time, and nothing beside it: a broker takes sequence numbers in order only.
                made = partition.again[0] if not partition.in_flight and self._look_at_s is None else None
                if made is not None:
                    del partition.again[0]
            else:
                made = self._make(partition, now_s)
            if made is None:
                continue
            chosen.append((partition, made))
            self._next_partition = (start + step + 1) % count
            size += len(made.data)
            if size + self.settings.batch_bytes > self.settings.request_bytes:
                break
        return chosen

    def _make(self, partition: _Partition, now_s: float) -> Batch | None:
        """The next batch, if there are records for it."""
        if self.settings.idempotent and partition.in_flight and not partition.begun:
            return None
        first = self._made
        capacity = self._source.capacity(self._batches)
        count = min(self._schedule.due(now_s) - first, capacity)
        due_s = self._schedule.due_s(first, now_s)
        whole = count == capacity or first + count == self._schedule.records
        if count <= 0 or (not whole and now_s - due_s < self.settings.linger_s):
            return None
        payload = self._source.payload(self._batches, first, count)
        sequence = partition.sequence if self.settings.idempotent else -1
        data = batch(payload, self._codec, int(time.time() * 1000), self._producer_id, self._producer_epoch, sequence)
        partition.sequence = (partition.sequence + count) % SEQUENCES
        self._made += count
        self._batches += 1
        return Batch(data, first, count, payload.value_bytes, due_s, self._schedule.due_s(first + count - 1, now_s), now_s)

    def _send(self, channel: Channel, leader: Broker, chosen: list[tuple[_Partition, Batch]], now_s: float) -> None:
        data = [PartitionProduceData(index=partition.index, records=made.data) for partition, made in chosen]
        topics = [TopicProduceData(name=self._topic.name, topic_id=self._topic_id, partition_data=data)]
        timeout_ms = int(self.settings.request_timeout_s * 1000)
        parts = encode(ProduceRequest(acks=self.settings.acks, timeout_ms=timeout_ms, topic_data=topics), self._version)
        self._requests += 1
        for partition, _ in chosen:
            partition.in_flight += 1
        answered = None if self.settings.acks == 0 else _Answer(self, chosen)
        try:
            channel.send(ProduceRequest, self._version, parts, now_s, answered)
        except LinkFailed as problem:
            if answered is None:
                self._unacknowledged(chosen)
            self._lost(leader, problem)
            return
        if answered is None:
            self._unacknowledged(chosen)
        self._watch(channel, leader)

    def _unacknowledged(self, chosen: list[tuple[_Partition, Batch]]) -> None:
        """With acks=0 what was given to the system counts as done."""
        now_s = time.perf_counter()
        for partition, made in chosen:
            partition.in_flight -= 1
            self._acknowledged(made, now_s)

    # --- what comes back ---

    def answer(self, chosen: list[tuple[_Partition, Batch]], body: memoryview) -> None:
        """The answer to a request with these batches."""
        now_s = time.perf_counter()
        response = decode(ProduceResponse, self._version, body)
        outcomes = {partition.index: partition for topic in response.responses for partition in topic.partition_responses}
        for partition, made in chosen:
            partition.in_flight -= 1
            outcome = outcomes.get(partition.index)
            if outcome is None:
                raise CommandFailed(f"the broker did not answer for partition {partition.index} of {self._topic.name}")
            code = outcome.error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):  # a duplicate: the first attempt was written after all
                partition.begun = True
                self._acknowledged(made, now_s)
            elif code in PASSING or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition.again):
                self._again(partition, [made], f"partition {partition.index}: {ErrorCode(code).name}", now_s)
            else:
                what = f"records were not written to partition {partition.index} of {self._topic.name}"
                raise broker_error(what, code, outcome.error_message)

    def _again(self, partition: _Partition, batches: list[Batch], problem: str, now_s: float) -> None:
        """Send these again, once the leaders have been asked for."""
        self._retries += len(batches)
        partition.again = sorted([*partition.again, *batches], key=lambda made: made.first)
        self._problem = problem
        if self._look_at_s is None:
            self._look_at_s = now_s + self.settings.backoff_s

    def _serve(self, leader: Broker, events: int) -> None:
        channel = self._channels.get(leader)
        if channel is None:
            return
        try:
            if events & selectors.EVENT_WRITE:
                channel.write()
            if events & selectors.EVENT_READ:
                channel.read()
        except LinkFailed as problem:
            self._lost(leader, problem)
            return
        self._watch(channel, leader)

    # --- connections and leaders ---

    def _connect(self, leader: Broker, now_s: float) -> Channel | None:
        if self._look_at_s is not None:
            return None  # the leaders are asked for first
        try:
            channel = Channel(
                leader.host, leader.port, self.settings.client_id, self.settings.send_buffer, self.settings.receive_buffer
            )
        except LinkFailed as problem:
            self._problem = str(problem)
            self._look_at_s = now_s + self.settings.backoff_s
            self._check_start(now_s)
            return None
        self._channels[leader] = channel
        self._connections += 1
        self._selector.register(channel.socket, channel.events, leader)
        return channel

    def _watch(self, channel: Channel, leader: Broker) -> None:
        key = self._selector.get_key(channel.socket)
        if key.events != channel.events:
            self._selector.modify(channel.socket, channel.events, leader)

    def _lost(self, leader: Broker, problem: LinkFailed) -> None:
        """Whatever was in flight there is sent again."""
        channel = self._channels.pop(leader)
        self._selector.unregister(channel.socket)
        channel.close()
        now_s = time.perf_counter()
        for waiting in channel.waiting:
            assert isinstance(waiting.answered, _Answer)
            for partition, made in waiting.answered.chosen:
                partition.in_flight -= 1
                self._again(partition, [made], str(problem), now_s)
        self._problem = str(problem)
        if self._look_at_s is None:
            self._look_at_s = now_s + self.settings.backoff_s

    def _look(self, now_s: float) -> None:
        """Ask for the leaders again, when it is time."""
        if self._look_at_s is None or now_s < self._look_at_s:
            return
        found: Leaders | None = self._topic.look()
        if found is None:
            self._look_at_s = time.perf_counter() + max(self.settings.backoff_s, 0.05)
            return
        self._look_at_s = None
        self._topic_id = found.topic_id  # another one, if the topic was made anew
        for partition in self._partitions:
            partition.leader = found.by_partition.get(partition.index)
        self._leaders = self._all_leaders()
        if any(partition.leader is None for partition in self._partitions):
            self._look_at_s = now_s + max(self.settings.backoff_s, 0.05)

    def _all_leaders(self) -> list[Broker]:
        return [leader for leader in dict.fromkeys(partition.leader for partition in self._partitions) if leader is not None]

    def _unsent(self) -> bool:
        return any(channel.unsent for channel in self._channels.values())

    def _check_start(self, now_s: float) -> None:
        """A leader that was never reached: its advertised address does not lead to it from here."""
        if not self._made and now_s - self.start_s > 15:
            raise CommandFailed(f"{self._problem}; it is what the cluster advertises: `txbroker doctor` looks into it")

    def _check_times(self, now_s: float) -> None:
        """Connections that do not answer are lost; batches that are too old end the command."""
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + CHECK_EVERY_S
        limit_s = self.settings.request_timeout_s
        for leader, channel in list(self._channels.items()):
            if channel.waiting and now_s - channel.waiting[0].sent_s > limit_s:
                self._lost(leader, LinkFailed(f"{channel.place} did not answer within {limit_s:.0f} s"))
        for partition in self._partitions:
            if partition.again and now_s - partition.again[0].made_s > self.settings.delivery_timeout_s:
                within = f"within delivery.timeout.ms ({self.settings.delivery_timeout_s:.0f} s)"
                raise CommandFailed(f"records were not acknowledged {within}: {self._problem}; see whether the broker runs")


class _Answer:
    """What waits for the answer to a request, with the batches that were in it."""

    __slots__ = ("_sender", "chosen")

    def __init__(self, sender: Sender, chosen: list[tuple[_Partition, Batch]]) -> None:
        self._sender = sender
        self.chosen = chosen

    def __call__(self, body: memoryview) -> None:
        self._sender.answer(self.chosen, body)
