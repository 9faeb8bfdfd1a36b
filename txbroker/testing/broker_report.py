"""What the report of a failing test has of its broker: the requests of the test's clients, and warnings of the broker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from txbroker.testing import live_brokers
from txbroker.testing.broker_process import log_text
from txbroker.testing.errors import KitError
from txbroker.testing.journal import Entries, Entry
from txbroker.testing.kafka import Kafka

LINES_MAX = 200
Sections = Sequence[tuple[str, str]]  # titles and texts
_WARNING = re.compile(r"^\[[^\]]*\] (WARN|ERROR|FATAL|CRITICAL)")


class BrokerReport:
    """Begins with a test. `from_start`: the broker has started in this test."""

    def __init__(self, kafka: Kafka, *, from_start: bool = False) -> None:
        self.kafka = kafka
        self._since = 0
        self._log_start = 0
        if from_start or not kafka.answers:
            return
        try:
            self._since = kafka.journal.last()
        except KitError:
            return  # without control, or ended
        if kafka.log_path is not None and kafka.log_path.exists():
            self._log_start = kafka.log_path.stat().st_size

    def sections(self, prefix: str | None) -> Sections:
        """`prefix`: of the names of this test, if it has any: other tests may use the broker at the same time."""
        found = []
        entries = Entries(())
        with suppress(KitError):  # it may have ended
            self.kafka.resume()
            entries = self.kafka.journal.entries(self._since)
        shown = entries if prefix is None or not self.kafka.is_shared else _of_test(entries, prefix)
        if shown:
            left_out = f"(the first {len(shown) - LINES_MAX} are left out)\n" if len(shown) > LINES_MAX else ""
            found.append((f"requests to {self.kafka.bootstrap_servers}", left_out + shown[-LINES_MAX:].text()))
        warnings = _warnings(self.kafka.log_path, self._log_start)
        if warnings:
            found.append((f"warnings of the broker {self.kafka.bootstrap_servers}", "\n".join(warnings[-LINES_MAX:])))
        return found


class Reports:
    """The reports of the brokers in one run of tests. `of_ended`: of those that an exception has ended in the test that runs."""

    def __init__(self) -> None:
        self.of_ended: list[Sections] = []
        self._begun: list[BrokerReport] = []
        live_brokers.before_failed_end.append(self._ends)

    def begin(self, kafkas: Iterable[Kafka]) -> None:
        """A test begins: from now on the journals of these brokers are about it."""
        self._begun = [BrokerReport(kafka) for kafka in kafkas]
        self.of_ended.clear()

    def of(self, kafka: Kafka) -> BrokerReport:
        """That of a broker, which may have started within the test."""
        return next((each for each in self._begun if each.kafka is kafka), None) or BrokerReport(kafka, from_start=True)

    def _ends(self, kafka: Kafka) -> None:
        self.of_ended.append(self.of(kafka).sections(None))


def _of_test(entries: Entries, prefix: str) -> Entries:
    """The requests on connections on which a name of the test was used."""
    connections = {entry.connection for entry in entries if _names(entry, prefix)}
    return Entries(entry for entry in entries if entry.connection in connections)


def _names(entry: Entry, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in (*entry.topics, *entry.groups, *entry.transactional_ids, entry.client_id or ""))


def _warnings(path: Path | None, start: int) -> list[str]:
    return [line for line in log_text(path, start).splitlines() if _WARNING.match(line)] if path is not None else []
