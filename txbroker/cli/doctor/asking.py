"""Requests of the doctor's sweep to many brokers, about many partitions: each of a bounded size, with progress.

Brokers that stop answering are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import Findings
from txbroker.cli.step_progress import OnProgress, Steps
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ConnectionFailed, RequestFailed, TooOld
from txbroker.client.config_requests import TOPIC_RESOURCE, describe_several
from txbroker.client.offset_requests import LATEST, FoundOffset, list_topics_offsets
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

Partition = tuple[str, int]  # topic and index
PARTITIONS_AT_ONCE = 1000
GROUPS_AT_ONCE = 100
TOPICS_AT_ONCE = 200
T = TypeVar("T")


class Asking:
    """Asks the brokers that can be reached. A broker whose connection fails gets one finding, and is not asked again."""

    def __init__(self, findings: Findings, cluster: Cluster, steps: Steps) -> None:
        self._findings = findings
        self._cluster = cluster
        self._steps = steps

    @property
    def brokers(self) -> Sequence[int]:
        """The ids of the brokers that can be asked."""
        return sorted(self._cluster.connections)

    def step(self, what: str) -> OnProgress:
        """Begin a step, for the progress."""
        return self._steps.step(what)

    def ask(self, broker: int, call: Callable[..., T], *arguments: Any) -> T | None:
        """The result of `call` with the broker's connection and the arguments.

        None without a connection, and for a request that the broker does not know.
        """
        connection = self._cluster.connections.get(broker)
        if connection is None:
            return None
        try:
            return call(connection, *arguments)
        except TooOld:
            return None
        except ConnectionFailed as problem:
            del self._cluster.connections[broker]
            connection.close()
            self._findings.failed(f"broker {broker}", f"it stopped answering: {problem}", f"see the log and the load of broker {broker}")
            return None

    def ask_any(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """The result from the first broker that has one."""
        for broker in self.brokers:
            found = self.ask(broker, call, *arguments)
            if found is not None:
                return found
        return None

    def metadata(self) -> MetadataResponse | None:
        """The metadata of all topics."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return self.ask_any(BlockingConnection.call, request)

    def offsets(self, by_leader: Mapping[int, Sequence[Partition]], isolation_level: int = 0) -> dict[Partition, FoundOffset]:
        """The ends of partitions, from their leaders, also with an error code; without those whose leaders cannot be asked."""
        found: dict[Partition, FoundOffset] = {}
        total = sum(map(len, by_leader.values()))
        show = self.step("offsets of partitions")
        done = 0
        for leader, partitions in by_leader.items():
            for some in portions(partitions, PARTITIONS_AT_ONCE):
                found |= self.ask(leader, _ends, by_topic(some), isolation_level) or {}
                done += len(some)
                show(done, total)
        return found


def _ends(connection: BlockingConnection, topics: Mapping[str, Sequence[int]], isolation_level: int) -> dict[Partition, FoundOffset]:
    return list_topics_offsets(connection.call, topics, LATEST, isolation_level)


def topic_configs(
    connection: BlockingConnection, keys: Mapping[str, Sequence[str]]
) -> dict[str, Mapping[str, str | None] | RequestFailed]:
    """The values of the keys of each topic, by topic; ConnectionFailed."""
    return describe_several(connection.call, TOPIC_RESOURCE, keys)


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """The indexes of partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


def portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in portions of at most `size`."""
    for at in range(0, len(items), size):
        yield items[at : at + size]


def worst(counts: Mapping[Any, int]) -> list[str]:
    """`name (count)`, the largest count first."""
    return [f"{name} ({count:,})" for name, count in sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))]
