"""kcat as a process that stays open: its records, and its messages about its group."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from compat.adapter import Consumer
from compat.samples import Record

# Neither occurs in a sample record.
RECORD_END = b"|record|"
KEY_END = b"|key|"
FORMAT = "%t %p %o %T %K %S %h\\n%k%s\\n"
_POLL_S = 0.1
_TIMEOUT_S = 60
_REBALANCE = re.compile(r"rebalanced.*(assign|revoke)[^:\n]*:(.*)")
_PARTITION = re.compile(r"(\S+) \[(\d+)\]")


def release() -> str:
    """The version of kcat, and that of its library."""
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", said.stdout)
    assert found is not None, said.stdout
    return f"{found[1]} (librdkafka {found[2]})"


def settings(values: Mapping[str, object]) -> list[str]:
    """librdkafka's settings as kcat's flags."""
    return [part for key, value in values.items() for part in ("-X", f"{key}={value}")]


def parsed(output: bytes) -> tuple[list[Record], int]:
    """The whole records in an output in FORMAT, and their length in bytes. A topic NAME.N is partition N."""
    read: list[Record] = []
    at = 0
    while True:
        line, newline, _ = output[at:].partition(b"\n")
        if not newline:
            return read, at
        place, partition, offset, timestamp, key_size, value_size, *headers = line.split(b" ", 6)
        start = at + len(line) + 1
        key, value = (None if size < 0 else size for size in (int(key_size), int(value_size)))
        middle, end = start + (key or 0), start + (key or 0) + (value or 0)
        if len(output) <= end:
            return read, at
        assert output[end:end + 1] == b"\n", f"a record longer than its length, at {offset.decode()}"
        number = _number(place.decode(), int(partition))
        read.append(Record(number, int(offset), int(timestamp), None if key is None else output[start:middle],
                           None if value is None else output[middle:end], _headers(headers)))
        at = end + 1


def _number(topic: str, partition: int) -> int:
    _, _, part = topic.rpartition(".")
    return int(part) if part != topic and part.isdigit() else partition


def _headers(text: list[bytes]) -> tuple[tuple[str, bytes | None], ...]:
    entries = [entry.partition(b"=") for entry in text[0].split(b",")] if text and text[0] else []
    return tuple((name.decode(), value) for name, _, value in entries)


class KcatConsumer(Consumer):
    """A kcat that keeps reading. A member of a group reports assigned and revoked partitions on standard error. Commits automatically."""

    def __init__(self, address: str, mode: Sequence[str], topics: Sequence[str], values: Mapping[str, object]) -> None:
        super().__init__(commits=False)
        self._said = tempfile.NamedTemporaryFile("w+b")  # noqa: SIM115  # open as long as the process
        arguments = topics if mode[0] == "-G" else ()
        self._process = subprocess.Popen(["kcat", "-E", "-u", "-b", address, "-f", FORMAT, *settings(values), *mode, *arguments],
                                         stdout=subprocess.PIPE, stderr=self._said)
        self._output = b""
        self._assigned: set[int] = set()
        self._heard = 0

    def poll(self) -> list[Record]:
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], _POLL_S)[0]:
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            assert data, f"kcat ended with {self._process.wait(_TIMEOUT_S)}: {Path(self._said.name).read_text(errors='replace')}"
            self._output += data
        self._hear()
        read, size = parsed(self._output)
        self._output = self._output[size:]
        return read

    def _hear(self) -> None:
        """New lines about the group."""
        text = Path(self._said.name).read_bytes()[self._heard:]
        text = text[:text.rfind(b"\n") + 1]
        self._heard += len(text)
        for what, places in _REBALANCE.findall(text.decode(errors="replace")):
            partitions = {_number(topic, int(number)) for topic, number in _PARTITION.findall(places)}
            if what == "assign":
                self.given()
                self._assigned |= partitions
            else:
                self.lost(partitions)
                self._assigned -= partitions

    _heard = 0

    def commit(self) -> None:
        raise NotImplementedError  # it commits automatically

    def assignment(self) -> set[int]:
        return set(self._assigned)

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=_TIMEOUT_S)
        self._process.kill()
        self._said.close()
