"""Traffic counters of a topic on this broker since its start: plain integers, read by the metrics."""

from __future__ import annotations


class TopicCounts:
    """The counters of one topic, shared by all of its partitions on this broker. Bytes are those of record batches.

    `fetch_requests` counts the partitions that fetches read; one that waits counts once. As in Kafka, a failure
    is counted only if it is the broker's: not a wrong leader, epoch, offset or topic in the request.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    bytes_in: int
    bytes_out: int
    bytes_rejected: int
    failed_fetch_requests: int
    failed_produce_requests: int
    fetch_requests: int
    messages_in: int
    produce_requests: int

    def add(self, other: TopicCounts) -> None:
        """Add the counters of `other`."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
