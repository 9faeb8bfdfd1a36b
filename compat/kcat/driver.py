"""What kcat can."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from typing import Any

from compat.adapter import Client, Unsupported, in_flight
from compat.driving import drive
from compat.samples import ANY_TIME, Record, sample_records

# Neither is in a sample record.
_RECORD_END = b"|record|"
_KEY_END = b"|key|"
_FORMAT = "%p %o %T %K %S %h\\n%k%s\\n"
_TIMEOUT_S = 60


class Kcat(Client):
    """One program a step. A run of it sends with one set of text headers, at its own time, and empty parts become null.

    It creates no topics but by using them, and those have one partition.
    """

    name = "kcat"
    partitions = 1

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.version = self._version()

    def records(self, count: int, partitions: int | None = None) -> list[Record]:
        """Sample records as kcat can send them."""
        headers = (("trace", b"0123"), ("again", b"1"), ("again", b"2"))
        samples = sample_records(count, partitions or self.partitions)
        return [r._replace(timestamp=ANY_TIME, key=r.key or None, value=r.value or None, headers=headers) for r in samples]

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        raise Unsupported("kcat creates no topics")

    def topics(self) -> set[str]:
        return {topic["topic"] for topic in self._metadata()["topics"]}

    def partitions_with_leaders(self, topic: str) -> int:
        found = [entry["partitions"] for entry in self._metadata()["topics"] if entry["topic"] == topic]
        return sum(partition["leader"] >= 0 for partition in found[0]) if found else 0

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        text = b"".join((r.key or b"") + _KEY_END + (r.value or b"") + _RECORD_END for r in records)
        headers = [option for name, value in records[0].headers for option in ("-H", f"{name}={(value or b'').decode()}")]
        self._run("-P", "-t", topic, "-p", "0", "-z", codec, "-D", _RECORD_END.decode(), "-K", _KEY_END.decode(), "-Z", *headers,
                  "-X", f"acks={acks}", "-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "batch.num.messages=50",
                  "-X", f"max.in.flight={in_flight(idempotent)}", stdin=text)

    def read(self, topic: str, count: int) -> list[Record]:
        return _records(self._run("-C", "-t", topic, "-o", "beginning", "-e", "-X", "check.crcs=true", "-f", _FORMAT))

    def read_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        return _records(self._run("-f", _FORMAT, "-c", str(count), "-X", "auto.offset.reset=earliest", "-G", group, topic))

    def first_and_last(self, topic: str, partition: int) -> tuple[int, int]:
        first, last = (self._offset(topic, partition, special) for special in (-2, -1))
        return first, last

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        return self._offset(topic, partition, timestamp)

    def _offset(self, topic: str, partition: int, timestamp: int) -> int:
        return int(self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").split()[-1])

    def _metadata(self) -> Any:
        return json.loads(self._run("-L", "-J"))

    def _run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        command = ["kcat", "-q", "-b", self.address, *arguments]
        ended = subprocess.run(command, input=stdin, capture_output=True, timeout=_TIMEOUT_S, check=False)
        assert ended.returncode == 0, f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr.decode(errors='replace')}"
        return ended.stdout

    def _version(self) -> str:
        said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        found = re.search(r"Version (\S+) .*librdkafka (\S+)", said.stdout)
        assert found is not None, said.stdout
        return f"{found[1]} (librdkafka {found[2]})"


def _records(output: bytes) -> list[Record]:
    read = []
    at = 0
    while at < len(output):
        line, _, _ = output[at:].partition(b"\n")
        partition, offset, timestamp, key_size, value_size, *headers = line.split(b" ", 5)
        at += len(line) + 1
        key, value = (None if size < 0 else size for size in (int(key_size), int(value_size)))
        middle, end = at + (key or 0), at + (key or 0) + (value or 0)
        read.append(Record(int(partition), int(offset), int(timestamp), None if key is None else output[at:middle],
                           None if value is None else output[middle:end], _headers(headers)))
        assert output[end:end + 1] == b"\n", f"a record longer than its length, at {read[-1][:2]}"
        at = end + 1
    return read


def _headers(text: list[bytes]) -> tuple[tuple[str, bytes | None], ...]:
    entries = [entry.partition(b"=") for entry in text[0].split(b",")] if text and text[0] else []
    return tuple((name.decode(), value) for name, _, value in entries)


if __name__ == "__main__":
    drive(Kcat)
