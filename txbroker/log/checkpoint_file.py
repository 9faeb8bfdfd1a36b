"""One checkpoint file of a log directory: read at start, written in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Generic, TypeVar

from txbroker.log.checkpoints import SIZE_MAX, MalformedCheckpoint
from txbroker.log.disk import Disk
from txbroker.log.log_results import Later
from txbroker.log.single_flight import SingleFlight
from txbroker.names import TopicPartition

T = TypeVar("T")

logger = logging.getLogger("txbroker.log")


class CheckpointFile(Generic[T]):
    """The file at `path` with the entries by partition that `entries` returns. It is replaced at once, and durably.

    `format_` and `parse` convert its content; `parse` raises MalformedCheckpoint.
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
        self._background = SingleFlight(later, self._prepare)

    def read(self) -> dict[TopicPartition, T]:
        """The entries of the file; none, with a warning, when it is missing or malformed, as in Kafka."""
        size = self._disk.size(self._path)
        if size is None:
            return {}
        if size > SIZE_MAX:
            logger.warning("ignoring %s: it has %d bytes, more than any broker writes", self._path, size)
            return {}
        try:
            return self._parse(self._disk.read(self._path) or b"")
        except MalformedCheckpoint as error:
            logger.warning("ignoring %s: %s", self._path, error)
            return {}

    def request(self) -> None:
        """Write it in a worker, unless its content has not changed."""
        self._background.request()

    def prepared(self) -> Callable[[], None]:
        """What a worker must call so that the file has what the entries are now, or newer ones."""
        self._prepare()
        return self._replace

    def write(self) -> None:
        """Write it now and wait, at the end of use, also what a worker found no space for. A worker that still writes has nothing newer."""
        self.prepared()()

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
