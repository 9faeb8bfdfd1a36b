"""One checkpoint file of a log directory: read at start, written in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Generic, TypeVar

from txbroker.log.checkpoints import SIZE_MAX, MalformedCheckpoint
from txbroker.log.disk import Disk
from txbroker.log.log_results import Later
from txbroker.log.single_flight import Coalesced
from txbroker.names import TopicPartition

T = TypeVar("T")

logger = logging.getLogger("txbroker.log")


class CheckpointFile(Generic[T]):
    """The file at `path`, which is to hold what `entries` returns, by partition. It is put in place whole and durable, or not at all.

    `format_` and `parse` know its format; `parse` raises MalformedCheckpoint.
    """

    def __init__(
        self,
        disk: Disk,
        later: Later,
        path: str,
        entries: Callable[[], Mapping[TopicPartition, T]],
        format_: Callable[[Mapping[TopicPartition, T]], bytes],
        parse: Callable[[bytes], dict[TopicPartition, T]],
    ) -> None:
        self._disk = disk
        self._path = path
        self._entries = entries
        self._format = format_
        self._parse = parse
        self._wanted = self._written = b""
        self._writing = Lock()
        self._background = Coalesced(later, self._prepare)

    def read(self) -> dict[TopicPartition, T]:
        """What the file holds; nothing when it is missing, or cannot be what a broker wrote (as Kafka, with a warning)."""
        size = self._disk.size(self._path)
        if size is None:
            return {}
        if size > SIZE_MAX:
            logger.warning("%s is ignored: it has %d bytes, more than any broker writes", self._path, size)
            return {}
        try:
            return self._parse(self._disk.read(self._path) or b"")
        except MalformedCheckpoint as error:
            logger.warning("%s is ignored: %s", self._path, error)
            return {}

    def request(self) -> None:
        """Write it in a worker, unless nothing changed."""
        self._background.request()

    def write(self) -> None:
        """Write it now and wait; for the end. What a worker still writes is not newer than this."""
        work = self._prepare()
        if work is not None:
            work()

    def _prepare(self) -> Callable[[], None] | None:
        content = self._format(self._entries())
        if content == self._wanted:
            return None
        self._wanted = content
        return self._replace

    def _replace(self) -> None:
        with self._writing:
            wanted = self._wanted
            if self._written is not wanted:
                self._disk.replace(self._path, wanted)
                self._written = wanted
