"""Waiting until the image shows what an admin request has asked the controller for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import Deferred

from txbroker.api.parking import park
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import NO_LEADER
from txbroker.purgatory import Purgatory


class TopicWaiting:
    """Topics that come, grow or go. Whoever changes the image, or ends a deletion, calls `changed` with the topics."""

    def __init__(self, image: ClusterImage, purgatory: Purgatory, is_deleting: Callable[[str], bool]) -> None:
        """`is_deleting`: whether the controller still has something to do for the deletion of this topic."""
        self._image = image
        self._is_deleting = is_deleting
        self._purgatory = purgatory

    def changed(self, topics: Iterable[str]) -> None:
        """The image of these topics has changed, or they are gone, or their deletion is over."""
        for topic in topics:
            self._purgatory.check(topic)

    def ready(self, counts: Mapping[str, int], timeout_ms: int) -> Deferred[bool]:
        """Until each topic has its number of partitions, all with leaders; False when the time was over before."""
        return park(self._purgatory, list(counts), timeout_ms, lambda done: _Wait(done, lambda: all(map(self._has, counts.items()))))

    def gone(self, topics: Mapping[str, bytes], timeout_ms: int) -> Deferred[bool]:
        """Until no topic has this name and id any longer, and the name is free; False when the time was over before."""
        return park(self._purgatory, list(topics), timeout_ms, lambda done: _Wait(done, lambda: all(map(self._lacks, topics.items()))))

    def _has(self, wanted: tuple[str, int]) -> bool:
        name, count = wanted
        topic = self._image.topic(name)
        if topic is None or len(topic.partitions) < count:
            return False
        return all(partition.leader != NO_LEADER for partition in topic.partitions.values())

    def _lacks(self, unwanted: tuple[str, bytes]) -> bool:
        name, topic_id = unwanted
        topic = self._image.topic(name)
        return (topic is None or topic.topic_id != topic_id) and not self._is_deleting(name)


class _Wait:
    """Ends with True when the condition holds, with False when its time is over."""

    def __init__(self, done: Deferred[bool], holds: Callable[[], bool]) -> None:
        self._done = done
        self._holds = holds

    def try_complete(self) -> bool:
        """Look again."""
        if not self._holds():
            return False
        self._done.callback(True)
        return True

    def on_expired(self) -> None:
        """Too late."""
        self._done.callback(False)
