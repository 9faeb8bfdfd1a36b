"""What the brokers of a cluster for tests know of it, and waiting until all of them know the same. Blocks; not for the reactor's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ClientError
from txbroker.client.client_machine import ClientSettings
from txbroker.testing.errors import KitError
from txbroker.testing.settings import OWN_CLIENT_ID
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition
from txbroker.wire.schema import Request

TIMEOUT_S = 60.0
LOOK_S = 0.02
SETTINGS = ClientSettings(client_id=OWN_CLIENT_ID)

Address = tuple[str, int]


class ClusterView:
    """`running`: the addresses of the brokers that run and are not paused, by id, where the test kit reaches them."""

    def __init__(self, running: Callable[[], Mapping[int, Address]]) -> None:
        self.running = running

    def call(self, broker: int, request: Request, version_max: int | None = None) -> Any:
        """The response of a broker; ClientError, and KitError if it does not run."""
        address = self.running().get(broker)
        if address is None:
            raise KitError(f"broker {broker} does not run: start or resume it first")
        with BlockingConnection(*address, SETTINGS) as connection:
            return connection.call(request, version_max=version_max)

    def metadata(self, broker: int, topic: str | None = None) -> MetadataResponse:
        """What a broker knows, of one topic or of all; ClientError."""
        topics = None if topic is None else [MetadataRequestTopic(name=topic)]
        found: MetadataResponse = self.call(broker, MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        return found

    def partition(self, broker: int, topic: str, partition: int) -> MetadataResponsePartition | None:
        """What a broker knows of a partition; ClientError."""
        partitions = self.metadata(broker, topic).topics[0].partitions
        return next((each for each in partitions if each.partition_index == partition), None)

    def existing(self, topic: str, partition: int) -> MetadataResponsePartition:
        """The partition, as one of the brokers knows it, some later than others; KitError if there is none.

        A broker that cannot be asked may just have ended. Its error counts if no other one knows the partition.
        """
        running = self.running()
        if not running:
            raise KitError("no broker runs: start one first")
        numbers: set[int] = set()
        problems: list[Exception] = []
        for broker in sorted(running):
            try:
                partitions = self.metadata(broker, topic).topics[0].partitions
            except (ClientError, KitError) as error:
                problems.append(error)
                continue
            for found in partitions:
                if found.partition_index == partition:
                    return found
                numbers.add(found.partition_index)
        if problems:
            raise problems[0]
        if not numbers:
            raise KitError(f"there is no topic {topic}; create it first")
        raise KitError(f"topic {topic} has no partition {partition}; its partitions are {', '.join(map(str, sorted(numbers)))}")

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait until `reached`; a ClientError counts as not yet. KitError after TIMEOUT_S."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            problem = ""
            try:
                if reached():
                    return
            except ClientError as error:
                problem = f": {error}"
            if time.monotonic() > deadline_s:
                raise KitError(f"{what} did not happen within {TIMEOUT_S:g} s{problem}; the log of the cluster may say why")
            time.sleep(LOOK_S)

    def until_everywhere(self, reached: Callable[[int], bool], what: str) -> None:
        """Wait until `reached(broker)` for all brokers that run."""
        self.until(lambda: all(reached(broker) for broker in self.running()), what)

    def knows_brokers(self, broker: int) -> bool:
        """Whether a broker knows exactly those that run or are paused as its cluster, with a controller, and no leader elsewhere."""
        found = self.metadata(broker)
        ids = {each.node_id for each in found.brokers}
        leaders = {each.leader_id for topic in found.topics for each in topic.partitions} - {-1}
        return broker in ids and found.controller_id in ids and leaders <= ids
