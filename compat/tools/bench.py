"""Helpers for the features of tools: calls of a tool, and kafka-python to check their effect."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafka import KafkaAdminClient

from compat.kafka_python.driver import KafkaPython
from compat.samples import Record, sample_records
from compat.simple import ready_topic
from compat.tools.events import EventTool
from compat.tools.host import Ended, ToolHost
from tests.support.cache import KAFKA_NEW

LIMIT_S = 120.0  # for one feature
_CALL_S = 60.0
_HEADING = re.compile(r"[#A-Z][A-Z-]*")

class _OnePartition(KafkaPython):
    partitions = 1


class Bench:
    """The tools of one release on one broker. `plain` is another client, whose topics have three partitions; those of `single` have one."""

    def __init__(self, address: str, release: str, classes: Path) -> None:
        self.address = address
        self.release = release
        self.new = release == KAFKA_NEW
        self.plain = KafkaPython(address)
        self.single = _OnePartition(address)
        self._admin = KafkaAdminClient(bootstrap_servers=address)
        self._host = ToolHost(release, classes)
        self._deadline = 0.0

    def begin(self) -> None:
        """Begin a feature, which may take LIMIT_S."""
        self._deadline = time.monotonic() + LIMIT_S

    def run(self, tool: str, *arguments: str, stdin: str = "", status: int = 0, server: bool = True) -> Ended:
        """Run kafka-TOOL; AssertionError unless it ends with `status`."""
        left = self._deadline - time.monotonic()
        assert left > 0, f"not done after {LIMIT_S:.0f} s"
        where = ("--bootstrap-server", self.address) if server else ()
        ended = self._host.run(f"kafka-{tool}", [*where, *arguments], stdin, min(left, _CALL_S))
        said = (ended.out.strip() + " " + ended.err.strip()).strip()
        assert ended.status == status, f"kafka-{tool} {' '.join(arguments)} ended with {ended.status} instead of {status}: {said[-300:]}"
        return ended

    def out(self, tool: str, *arguments: str) -> str:
        """The output of kafka-TOOL, which must exit with 0."""
        return self.run(tool, *arguments).out

    def fails(self, tool: str, *arguments: str, saying: str) -> None:
        """Check that kafka-TOOL exits with 1 and prints a message that matches."""
        ended = self.run(tool, *arguments, status=1)
        assert re.search(saying, ended.out + ended.err), f"kafka-{tool} {' '.join(arguments)} said {(ended.out + ended.err)[:300]}"

    @contextmanager
    def events(self, tool: str, *arguments: str) -> Iterator[EventTool]:
        """A verifiable tool that runs in the background."""
        running = EventTool(f"kafka-{tool}", self.release, ["--bootstrap-server", self.address, *arguments])
        try:
            yield running
        finally:
            running.close()

    @property
    def broker_id(self) -> int:
        """The id of the one broker."""
        (broker,) = self._admin.describe_cluster()["brokers"]
        return int(broker["broker_id"])

    def filled(self, topic: str, count: int) -> list[Record]:
        """A topic of three partitions with that many sample records, record i in partition i modulo 3."""
        ready_topic(self.plain, topic)
        records = sample_records(count)
        self.plain.produce(topic, records)
        return records

    def group_offsets(self, group: str) -> dict[int, int]:
        """The committed offsets of a group in its one topic, by partition."""
        listed = self._admin.list_group_offsets(group)[group]
        return {place.partition: found.offset for place, found in listed.items() if found.offset >= 0}

    def close(self) -> None:
        """Stop the JVM and the clients."""
        self._host.close()
        self._admin.close()
        self.plain.close()
        self.single.close()


def table(text: str) -> list[Mapping[str, str]]:
    """The rows of all tables in a tool's output, by the words of the heading; other lines are skipped."""
    heading: list[str] = []
    rows: list[Mapping[str, str]] = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in ("GROUP", "TOPIC"):
            heading = list(itertools.takewhile(_HEADING.fullmatch, words))
            words = words[len(heading):]
        # 3.9.1 puts some of its tables on one line.
        if heading and len(words) % len(heading) == 0:
            rows += [dict(zip(heading, words[i:i + len(heading)], strict=True)) for i in range(0, len(words), len(heading))]
    return rows
