"""Waiting until the cluster image shows the result of an admin request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import Deferred

from txbroker.api.parking import park
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import NO_LEADER
from txbroker.purgatory import Purgatory

_BROKERS = ""  # among the names of topics, none of which is empty


class TopicWaiting:
    """Waits for topics to be created, extended or deleted, and for the first metadata."""

    def __init__(self, image: ClusterImage, purgatory: Purgatory, is_deleting: Callable[[str], bool]) -> None:
        """`is_deleting`: whether the deletion of this topic is not finished in the controller."""
        self._image = image
        self._is_deleting = is_deleting
        self._purgatory = purgatory

    def changed(self, topics: Iterable[str]) -> None:
        """The image of these topics has changed, or they are removed from it, or their creation or deletion has ended."""
        for topic in topics:
            self._purgatory.check(topic)

    def brokers_changed(self) -> None:
        """The set of live brokers in the image has changed, or the image is complete."""
        self._purgatory.check(_BROKERS)

    def brokers(self, timeout_ms: int) -> Deferred[bool]:
        """Fires with True when the image is complete, after the controller's first requests; with False after the timeout."""
        return self.until([_BROKERS], lambda: self._image.is_complete, timeout_ms)

    def ready(self, counts: Mapping[str, int], timeout_ms: int) -> Deferred[bool]:
        """Fires with True when each topic has its number of partitions, all with leaders; with False after the timeout."""
        return self.until(counts, lambda: all(self.has(name, count) for name, count in counts.items()), timeout_ms)

    def gone(self, topics: Mapping[str, bytes], timeout_ms: int) -> Deferred[bool]:
        """Fires with True when no topic has this name and id, and the name can be used again; with False after the timeout."""
        return self.until(topics, lambda: all(map(self._lacks, topics.items())), timeout_ms)

    def until(self, names: Iterable[str], condition: Callable[[], bool], timeout_ms: int) -> Deferred[bool]:
        """Fires with True when the condition holds, which is checked when these topics have changed; with False after the timeout."""
        return park(self._purgatory, list(names), timeout_ms, lambda done: _Wait(done, condition))

    def has(self, name: str, count: int) -> bool:
        """Whether a topic has as many partitions, all with leaders."""
        topic = self._image.topic(name)
        if topic is None or len(topic.partitions) < count:
            return False
        return all(partition.leader != NO_LEADER for partition in topic.partitions.values())

    def _lacks(self, unwanted: tuple[str, bytes]) -> bool:
        name, topic_id = unwanted
        topic = self._image.topic(name)
        return (topic is None or topic.topic_id != topic_id) and not self._is_deleting(name)


class _Wait:
    """Fires with True when the condition holds, with False when the time is over."""

    def __init__(self, done: Deferred[bool], holds: Callable[[], bool]) -> None:
        self._done = done
        self._holds = holds

    def try_complete(self) -> bool:
        """Check the condition."""
        if not self._holds():
            return False
        self._done.callback(True)
        return True

    def on_expired(self) -> None:
        """The timeout is over."""
        self._done.callback(False)
