"""Changes of logs by request: rolled, filled, truncated as after an unclean election, and a topic replaced by an empty one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from txbroker.broker.components import Components
from txbroker.cluster.image import PartitionImage
from txbroker.cluster.node_data import NO_LEADER
from txbroker.cluster.partition import Partition
from txbroker.errors import BrokerError, StorageError
from txbroker.log.log_results import Origin
from txbroker.names import INTERNAL_TOPICS, TopicPartition
from txbroker.testing.errors import KitError
from txbroker.testing.faults import Faults
from txbroker.testing.moved_clock import MovedClock
from txbroker.wire.records import Record, build

FILL_MAX = 10_000_000
BATCH_BYTES = 16_384  # the default of producers' batch.size
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 24  # at most, with the key of a number
TURN_S = 0.01  # for other work of the broker
LOOK_S = 0.001
PATIENCE_S = 20.0


class LogOperations:
    """Of one broker. For the reactor's thread only, one call at a time. Methods raise KitError."""

    def __init__(self, reactor: Any, clock: MovedClock, faults: Faults, components: Components) -> None:
        self._reactor = reactor
        self._clock = clock
        self._faults = faults
        self._components = components

    async def roll(self, topic: str) -> None:
        """Close the active segment of each replica that this broker has."""
        await self._until_known(topic)
        for partition in self._partitions(topic):
            try:
                partition.log.roll(self._clock.now_ms())
            except BrokerError as error:
                if isinstance(error, StorageError):
                    partition.storage_failed(error)
                raise KitError(f"{partition.topic_partition} was not rolled: {error}") from None

    async def compact(self, topic: str) -> None:
        """Close the active segments of the partitions that this broker leads, and compact these."""
        maintenance = self._components.logs.on_demand
        await self._maintain(topic, "compacted", lambda partition: maintenance.clean_now(partition, roll=True))

    async def expire(self, topic: str) -> None:
        """Delete what retention allows to delete from the partitions that this broker leads."""
        await self._maintain(topic, "expired", self._components.logs.on_demand.expire_now)

    async def _maintain(self, topic: str, what: str, begin: Callable[[TopicPartition], Deferred[None]]) -> None:
        await self._until_known(topic)
        led = [each.topic_partition for each in self._partitions(topic) if each.is_leader]
        for topic_partition in led:
            try:
                await begin(topic_partition)
            except BrokerError as error:
                raise KitError(f"{topic_partition} was not {what}: {error}") from None

    async def trim(self, topic: str, number: int, before: int) -> int:
        """Delete the records of a partition before an offset, -1 for its end, in all replicas; the first offset that is left."""
        self._refuse_internal(topic)
        await self._until_known(topic)
        partition = next((each for each in self._partitions(topic) if each.topic_partition.partition == number and each.is_leader), None)
        if partition is None:
            raise KitError(f"this broker does not lead partition {number} of {topic}")
        try:
            start = partition.delete_records(before)
        except BrokerError as error:
            raise KitError(f"{partition.topic_partition} was not trimmed: {error}") from None
        await self._until(lambda: partition.low_watermark >= start, f"{partition.topic_partition} is not trimmed in all replicas")
        return partition.low_watermark

    async def fill(self, topic: str, count: int, size: int) -> dict[int, int]:
        """Append records in batches of BATCH_BYTES, spread over the partitions; the end of each partition that this broker leads.

        The key of a record is its number, as text; its value, of `size` bytes, begins with the number. The other brokers of a cluster
        append what belongs into their partitions.
        """
        await self._until_known(topic)
        numbers = sorted(self._known(topic))
        led = {each.topic_partition.partition: each for each in self._partitions(topic) if each.is_leader}
        share, rest = divmod(count, len(numbers))
        first = 0
        for index, number in enumerate(numbers):
            last = first + share + (index < rest)
            if number in led:
                await self._append(led[number], range(first, last), size)
            first = last
        return {number: partition.log.log_end_offset for number, partition in led.items()}

    async def _append(self, partition: Partition, numbers: range, size: int) -> None:
        limit = min(BATCH_BYTES, partition.log.config.max_message_bytes, partition.log.config.segment_bytes)
        length = max((limit - BATCH_OVERHEAD_BYTES) // (size + RECORD_OVERHEAD_BYTES), 1)
        pause_s = self._reactor.seconds() + TURN_S
        for start in range(0, len(numbers), length):
            date = self._clock.now_ms()
            some = numbers[start : start + length]
            records = [Record(at, date, b"%d" % number, (b"%d" % number).ljust(size, b".")) for at, number in enumerate(some)]
            try:
                partition.append(memoryview(bytearray(build(records, base_offset=0))), date, all_in_sync=True, origin=Origin.CLIENT)
            except BrokerError as error:
                raise KitError(f"{partition.topic_partition} was not filled: {error}") from None
            if self._reactor.seconds() > pause_s:
                await deferLater(self._reactor, LOOK_S)
                pause_s = self._reactor.seconds() + TURN_S
        end = partition.log.log_end_offset
        await self._until(lambda: partition.high_watermark >= end, f"the records of {partition.topic_partition} are not in all replicas")

    async def truncate(self, topic: str, number: int, to: int) -> tuple[int, int]:
        """Remove the records from an offset on, and begin a new leader epoch; the new end, and the epoch.

        The end is lower if the offset is within a batch. Requests wait meanwhile.
        """
        self._refuse_internal(topic)
        partition = next((each for each in self._led(topic) if each.topic_partition.partition == number), None)
        if partition is None:
            raise KitError(f"topic {topic} has no partition {number}")
        start, end = partition.log.log_start_offset, partition.log.log_end_offset
        if not start <= to <= end:
            raise KitError(f"partition {number} of {topic} cannot be truncated to offset {to}: its offsets are {start} to {end}")
        if not self._components.controller.active:
            raise KitError("only the broker that is the controller can begin a leader epoch: ask that one")
        epoch = partition.state.leader_epoch
        with _closed(self._faults):
            # A partition truncates its log only while it does not lead. Fetches that wait get the epoch first.
            partition.follow(partition.state._replace(leader=NO_LEADER, leader_epoch=epoch + 1))
            await deferLater(self._reactor, LOOK_S)
            try:
                if to < end:
                    await self._until(lambda: self._cut(partition, to), f"partition {number} of {topic} is not truncated")
            except BrokerError as error:
                raise KitError(f"partition {number} of {topic} was not truncated: {error}") from None
            finally:
                await self._controller_begins_epoch(partition)
            await self._until(
                lambda: partition.is_leader and partition.state.leader_epoch > epoch, f"partition {number} of {topic} has no leader"
            )
            await self._until(lambda: self._image_knows(partition), f"the leader of partition {number} of {topic} is not known")
        return partition.log.log_end_offset, partition.state.leader_epoch

    def _cut(self, partition: Partition, to: int) -> bool:
        if partition.log.log_end_offset > to:
            partition.truncate_to(to)
        return partition.log.log_end_offset <= to and not partition.log.names_due

    async def _controller_begins_epoch(self, partition: Partition) -> None:
        try:
            await self._components.controller.begin_epochs([partition.topic_partition])
        except BrokerError as error:
            raise KitError(f"{partition.topic_partition} has no leader: its new epoch was not written: {error}") from None

    def _image_knows(self, partition: Partition) -> bool:
        known = self._components.image.partition(*partition.topic_partition)
        return known is not None and known.leader_epoch == partition.state.leader_epoch

    async def recreate(self, topic: str) -> None:
        """Delete a topic and create it with the same partitions and configuration. Requests wait meanwhile: none sees it absent."""
        self._refuse_internal(topic)
        admin = self._components.topic_admin
        count = len(self._led(topic))
        with _closed(self._faults):
            try:
                again = await admin.description(topic)
                await admin.delete(topic)
                await self._until(lambda: not admin.is_deleting(topic), f"topic {topic} is not deleted")
                created = await admin.create(again)
            except BrokerError as error:
                raise KitError(f"topic {topic} was not recreated: {error}") from None

            def is_led() -> bool:
                found = self._components.image.topic(topic)
                known = found is not None and found.topic_id == created.topic_id and len(found.partitions) == count
                return known and all(part.is_leader for part in self._partitions(topic)) and len(self._partitions(topic)) == count

            await self._until(is_led, f"the new topic {topic} has no leader")

    def _partitions(self, topic: str) -> list[Partition]:
        found = [partition for partition in self._components.replicas if partition.topic_partition.topic == topic]
        return sorted(found, key=lambda each: each.topic_partition)

    async def _until_known(self, topic: str) -> None:
        """A broker of a cluster knows a topic a little later than the one that has created it."""
        late_s = self._reactor.seconds() + (0 if self._faults.is_alone else PATIENCE_S)
        while self._reactor.seconds() < late_s:
            known = self._components.image.topic(topic)
            if known is not None and all(each.leader != NO_LEADER for each in known.partitions.values()):
                return
            await deferLater(self._reactor, LOOK_S)
        self._known(topic)

    def _known(self, topic: str) -> Mapping[int, PartitionImage]:
        """The partitions of a topic, each with a leader."""
        known = self._components.image.topic(topic)
        if known is None:
            raise KitError(f"there is no topic {topic}")
        for number, partition in known.partitions.items():
            if partition.leader == NO_LEADER:
                raise KitError(f"{TopicPartition(topic, number)} has no leader: start its brokers first")
        return known.partitions

    def _led(self, topic: str) -> list[Partition]:
        """All partitions of a topic, which this broker must lead."""
        partitions = [each for each in self._partitions(topic) if each.is_leader]
        missing = sorted(self._known(topic).keys() - {each.topic_partition.partition for each in partitions})
        if missing:
            raise KitError(f"this broker does not lead {TopicPartition(topic, missing[0])}")
        return partitions

    def _refuse_internal(self, topic: str) -> None:
        if topic in INTERNAL_TOPICS:
            raise KitError(f"{topic} has the state of groups or transactions, which would differ from it: use expire() instead")

    async def _until(self, holds: Callable[[], bool], problem: str) -> None:
        late_s = self._reactor.seconds() + PATIENCE_S
        while not holds():
            if self._reactor.seconds() > late_s:
                raise KitError(f"{problem} after {PATIENCE_S:g} s: see the broker's log")
            await deferLater(self._reactor, LOOK_S)


class _closed:
    """Requests of clients wait within this block."""

    def __init__(self, faults: Faults) -> None:
        self._gate = faults.gate

    def __enter__(self) -> None:
        self._gate.close()

    def __exit__(self, *_: object) -> None:
        self._gate.open()
