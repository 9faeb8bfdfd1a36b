"""A topic for a load, whose partitions are led by any of the server's brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench import requests
from bench.requests import BrokerClient
from tests.support.server import Server
from txbroker.wire.batch import HEADER_SIZE

# batch.size of Java's producer, by default.
BATCH_BYTES = 16_384


@dataclass(frozen=True)
class Topic:
    """A topic that exists, with one record in each partition, and the addresses of its leaders."""

    name: str
    id: bytes
    leaders: Sequence[str]

    @property
    def ports(self) -> list[int]:
        """The leaders' ports."""
        return [int(address.rpartition(":")[2]) for address in self.leaders]

    def fill(self, records: bytes, times: int) -> None:
        """Append the same batch many times to each partition."""
        self._each(lambda client, partition: client.fill(self.id, partition, records, times))

    def fill_records(self, records: int, value_bytes: int) -> None:
        """Append at least so many records to all partitions together, in batches that are the same for every broker.

        A producer would make larger batches for the slower broker, which consumers then read faster.
        """
        in_batch = max(1, BATCH_BYTES // len(requests.batch(1, value_bytes)[HEADER_SIZE:]))
        self.fill(requests.batch(in_batch, value_bytes), -(-records // (len(self.leaders) * in_batch)))

    def end_offsets(self) -> int:
        """The sum of all end offsets."""
        ends: list[int] = []
        self._each(lambda client, partition: ends.append(client.end_offset(self.name, partition)))
        return sum(ends)

    def _each(self, work: Callable[[BrokerClient, int], None]) -> None:
        for partition, address in enumerate(self.leaders):
            with BrokerClient(address) as client:
                work(client, partition)


@contextmanager
def new_topic(server: Server, name: str, partitions: int) -> Iterator[Topic]:
    """Create a topic, and delete it in the end."""
    with BrokerClient(server.address) as any_broker:
        with BrokerClient(any_broker.cluster(name).controller) as client:
            topic_id = client.new_topic(name, partitions)
        leaders: Mapping[int, str] = {}
        while len(leaders) < partitions:
            leaders = any_broker.cluster(name).leaders
    topic = Topic(name, topic_id, [leaders[partition] for partition in range(partitions)])
    topic._each(lambda client, partition: client.until_written(topic_id, partition))
    try:
        yield topic
    finally:
        with BrokerClient(server.address) as any_broker, BrokerClient(any_broker.cluster(name).controller) as client:
            client.delete_topic(name)
