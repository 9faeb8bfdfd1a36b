"""What `Kafka` does by the control port of its broker: the clock, logs, and what ends by request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from txbroker.testing.checked_calls import checked
from txbroker.testing.control_client import ControlClient
from txbroker.testing.errors import KitError

TIMEOUT_S = 300.0  # a move of the clock over much data takes its time


@checked
class BrokerControl:
    """A part of `Kafka`. Methods raise KitError."""

    is_shared: bool
    _control: ControlClient

    @property
    def now(self) -> datetime:
        """The date as the broker sees it, in UTC."""
        return datetime.fromtimestamp(self._control.get("/clock")["now_ms"] / 1000, UTC)

    def advance(self, by: timedelta) -> None:
        """Set the broker's wall clock ahead. When this returns, what fell due has happened, in the order of its dates.

        That is: retention, segments that are closed by time, compaction with its lags, tombstones, committed offsets, producer ids,
        transactional ids, and transactions that are open for longer than their timeout. Members of groups keep their sessions: they have
        monotonic deadlines, see `expire`. Clients keep their own clocks, and write records with today's date: retention deletes these,
        too, if the clock is further ahead than retention.ms. `at`, or message_timestamp_type="LogAppendTime" of the topic, avoids that.

        The clock stays ahead, also over `kill` and `start`, and never goes back.
        """
        self._check_move(by, "advance")
        self._move("/advance", by)

    def at(self, by: timedelta) -> AbstractContextManager[None]:
        """The broker's wall clock is ahead within a with statement: as `advance`, but at the end it is what it was.

        What has happened remains; what clients write afterwards has the date of the broker again.
        """
        self._check_move(by, "at")
        return _Scope(lambda: self._move("/at", by), lambda: self._post("/at/end"))

    def roll(self, topic: str) -> None:
        """Close the active segment of each partition, as when it is full: what is in it can be compacted, and deleted by retention."""
        self._post("/roll", {"topic": topic})

    def fill(self, topic: str, count: int, *, size: int = 100) -> None:
        """Append so many records fast, spread over the partitions, in batches of 16 KiB: the batch.size that producers have by default.

        The key of a record is its number, from 0 on; its value has `size` bytes and begins with the number.
        """
        self._post("/fill", {"topic": topic, "count": count, "size": size})

    def truncate(self, topic: str, partition: int, to: int) -> int:
        """Remove the records from an offset on, and begin a new leader epoch, as after an unclean leader election; the new end.

        It is lower than `to` if that is within a batch. Requests of clients wait meanwhile.
        """
        return int(self._post("/truncate", {"topic": topic, "partition": partition, "to": to})["end"])

    def recreate_topic(self, name: str) -> None:
        """Replace a topic by an empty one of the same name, with a new id and leader epoch 0, and the same partitions and configuration.

        Requests of clients wait meanwhile, and none sees the topic absent.
        """
        self._post("/recreate", {"topic": name})

    def snapshot(self, to: str | Path) -> None:
        """Copy the data of the broker into a new or empty directory: topics, records, offsets, states of transactions, configurations.

        The broker stops and starts again within its process, so connections of clients are closed, as by a restart. One that refused
        connections takes them again.
        """
        self._refuse_shared("its data would be copied, and their connections closed")
        self._post("/snapshot", {"to": str(Path(to).absolute())})

    def restore(self, source: str | Path) -> None:
        """Replace the data of the broker by that of a snapshot. Its address and ids remain, and so do its clock, rules and journal.

        Connections of clients are closed, as by a restart. A broker that refused them takes them again.
        """
        self._refuse_shared("the data of all would be replaced")
        self._post("/restore", {"from": str(Path(source).absolute())})

    def _refuse_shared(self, effect: str) -> None:
        if self.is_shared:
            problem = f"the processes of this test run share the broker, and {effect}"
            raise KitError(f"{problem}: take a broker of txbroker_factory, or specify --txbroker-per-worker")

    def _check_move(self, by: timedelta, method: str) -> None:
        self._refuse_shared("its clock would move for the tests of all")
        if by < timedelta(0):
            raise KitError(f"{method}() is called with {by}: a clock cannot go back; start another broker instead")

    def _move(self, path: str, by: timedelta) -> None:
        self._post(path, {"seconds": by.total_seconds()})

    def _expire(self, **names: str) -> None:
        self._post("/expire", {key: name for key, name in names.items() if name})

    def _post(self, path: str, body: object = None) -> Any:
        return self._control.post(path, body, TIMEOUT_S)


@checked
class _Scope(AbstractContextManager[None]):
    """The clock is ahead within a with statement."""

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *_: object) -> None:
        self._end()
