"""Names of topics, groups and clients that no other test uses, and that are deleted together."""

from __future__ import annotations

import re
import secrets
from types import TracebackType
from typing import Protocol, Self

from txbroker.testing.checked_calls import checked

NAME_LENGTH_MAX = 100
_OTHER = re.compile(r"[^a-zA-Z0-9._-]+")


class _Broker(Protocol):
    def create_topic(self, name: str, partitions: int = 1, replicas: int = -1, **configs: object) -> str: ...

    def delete_topics(self, *names: str) -> None: ...

    def delete_group(self, name: str) -> bool: ...


@checked
class Namespace:
    """Made by `Kafka.namespace`. At its end its topics are deleted, and its groups, as far as they have no members."""

    def __init__(self, broker: _Broker, name: str) -> None:
        self.prefix = f"{plain(name)}-{secrets.token_hex(4)}"
        self._broker = broker
        self._topics: list[str] = []
        self._groups: list[str] = []

    def topic(self, name: str = "topic", partitions: int = 1, replicas: int = -1, **configs: object) -> str:
        """Create a topic, as `Kafka.create_topic`; returns its whole name."""
        return self.created(self._broker.create_topic(f"{self.prefix}.{plain(name)}", partitions, replicas, **configs))

    def created(self, topic: str) -> str:
        """Delete this topic, too, if it exists at the end."""
        self._topics.append(topic)
        return topic

    def group(self, name: str = "group") -> str:
        """The name for a group."""
        self._groups.append(f"{self.prefix}.{plain(name)}")
        return self._groups[-1]

    def client_id(self, name: str = "client") -> str:
        """The name for a client; also for a transactional id."""
        return f"{self.prefix}.{plain(name)}"

    def close(self) -> None:
        """Delete the topics and groups; ClientError."""
        topics, self._topics = self._topics, []
        groups, self._groups = self._groups, []
        for group in groups:
            self._broker.delete_group(group)
        self._broker.delete_topics(*topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def plain(name: str) -> str:
    """The name with only the characters that a topic's name may have."""
    return _OTHER.sub("-", name).strip("-")[:NAME_LENGTH_MAX] or "test"
