"""What Apache Kafka's command line tools can, each call a JVM of its own."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compat.adapter import Client
from compat.driving import drive
from compat.samples import ANY_TIME, Record
from tests.support import cache, java, prepare

_RELEASE = {"3.9.1": cache.KAFKA_OLD, "4.3.1": cache.KAFKA_NEW}[os.environ.get("CLIENT_VERSION", "4.3.1")]
_NEW = _RELEASE == cache.KAFKA_NEW
_READER, _FORMATTER = ("--reader-property", "--formatter-property") if _NEW else ("--property", "--property")
_PRODUCER, _CONSUMER = ("--command-property", "--command-property") if _NEW else ("--producer-property", "--consumer-property")
_NULL = "<null>"
# Prints what is not printable ASCII, and the backslash, as \xNN.
_ESCAPING = "org.apache.kafka.common.serialization.BytesDeserializer"
_LINE = re.compile(r"CreateTime:(\d+)\tPartition:(\d+)\tOffset:(\d+)\t([^\t]*)\t([^\t]*)\t([^\t]*)")


class JavaTools(Client):
    """The console producer reads lines of text: its records have text, no chosen time and, in one partition, a known place."""

    # Two releases are two rows of the table: 3.9.1's tools have old clients.
    name = f"Java tools {_RELEASE.removeprefix('kafka-').rpartition('.')[0]}"
    version = _RELEASE.removeprefix("kafka-")
    partitions = 1

    def __init__(self, address: str) -> None:
        super().__init__(address)
        prepare.ensure_jars(_RELEASE)

    def records(self, count: int, partitions: int | None = None) -> list[Record]:
        """Text of several scripts, null values, empty ones, headers, and long lines."""
        made = []
        for i in range(count):
            key = None if i % 7 == 3 else f"key-{i % 5} ключ".encode()
            value = None if key and i % 11 == 4 else b"" if i % 13 == 5 else f"value {i} значение 🗝 \\ ".encode() * (1 + i % 50)
            headers = (("trace", b"%d" % i), ("again", b"1"), ("again", "два".encode())) if i % 3 else ()
            made.append(Record(0, i, ANY_TIME, key, value, headers))
        return made

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        options = [part for key, value in configs.items() for part in ("--config", f"{key}={value}")]
        self._run("kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1", *options)

    def topics(self) -> set[str]:
        return set(self._run("kafka-topics", "--list").split())

    def partitions_with_leaders(self, topic: str) -> int:
        return len(re.findall(r"Partition: \d+\s+Leader: \d+", self._run("kafka-topics", "--describe", "--topic", topic)))

    def leaders_answer(self, topic: str, partitions: int) -> bool:
        """The next tool starts so slowly that they do."""
        return True

    def delete_topic(self, topic: str) -> None:
        self._run("kafka-topics", "--delete", "--topic", topic)

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        lines = "".join(f"{_header_text(r)}\t{_text(r.key)}\t{_text(r.value)}\n" for r in records)
        self._run("kafka-console-producer", "--topic", topic, "--compression-codec", codec, "--request-required-acks", acks,
                  "--batch-size", "4000", _PRODUCER, f"enable.idempotence={str(idempotent).lower()}", _READER, "parse.key=true",
                  _READER, "parse.headers=true", _READER, f"null.marker={_NULL}", stdin=lines)

    def read(self, topic: str, count: int) -> list[Record]:
        return self._consume(topic, count, "--partition", "0", "--offset", "earliest")

    def read_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        return self._consume(topic, count, "--group", group, _CONSUMER, "auto.offset.reset=earliest")

    def _consume(self, topic: str, count: int, *arguments: str) -> list[Record]:
        settings = [f"print.{part}=true" for part in ("timestamp", "partition", "offset", "headers", "key")]
        settings += [f"null.literal={_NULL}", f"headers.deserializer={_ESCAPING}"]
        options = [part for setting in settings for part in (_FORMATTER, setting)]
        output = self._run("kafka-console-consumer", "--topic", topic, "--max-messages", str(count), "--timeout-ms", "30000",
                           "--key-deserializer", _ESCAPING, "--value-deserializer", _ESCAPING, *options, *arguments)
        return [_record(line) for line in output.splitlines()]

    def first_and_last(self, topic: str, partition: int) -> tuple[int, int]:
        return self._offset(topic, partition, "earliest"), self._offset(topic, partition, "latest")

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        return self._offset(topic, partition, str(timestamp))

    def _offset(self, topic: str, partition: int, time: str) -> int:
        printed = self._run("kafka-get-offsets", "--topic-partitions", f"{topic}:{partition}", "--time", time)
        return int(printed.strip().rpartition(":")[2])

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "delete.json"
            path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": partition, "offset": before}], "version": 1}))
            printed = self._run("kafka-delete-records", "--offset-json-file", str(path))
        assert f"low_watermark: {before}" in printed, printed

    def config(self, topic: str, key: str) -> str:
        printed = self._run("kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--describe", "--all")
        found = re.search(rf"^\s*{re.escape(key)}=(\S*) ", printed, re.MULTILINE)
        assert found is not None, f"{key} is not described"
        return found[1]

    def set_config(self, topic: str, key: str, value: str) -> None:
        self._run("kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", f"{key}={value}")

    def groups(self) -> set[str]:
        return set(self._run("kafka-consumer-groups", "--list").split())

    def group_state(self, group: str) -> str:
        printed = self._run("kafka-consumer-groups", "--describe", "--group", group, "--state")
        return printed.split()[-2].lower()

    def delete_group(self, group: str) -> None:
        printed = self._run("kafka-consumer-groups", "--delete", "--group", group)
        assert "successful" in printed, printed

    def _run(self, tool: str, *arguments: str, stdin: str | None = None) -> str:
        return java.run(tool, "--bootstrap-server", self.address, *arguments, release=_RELEASE, stdin=stdin)


def _text(part: bytes | None) -> str:
    return _NULL if part is None else part.decode()


def _header_text(record: Record) -> str:
    if not record.headers:
        return _NULL
    return ",".join(f"{name}:{(value or b'').decode()}" for name, value in record.headers)


def _record(line: str) -> Record:
    matched = _LINE.fullmatch(line)
    assert matched is not None, f"the console consumer printed {line[:200]!r}"
    timestamp, partition, offset, headers, key, value = matched.groups()
    entries = [entry.partition(":") for entry in headers.split(",")] if headers != "NO_HEADERS" else []
    return Record(int(partition), int(offset), int(timestamp), _part(key), _part(value),
                  tuple((name, _part(text)) for name, _, text in entries))


def _part(text: str) -> bytes | None:
    if text == _NULL:
        return None
    return re.sub(rb"\\x([0-9A-F]{2})", lambda found: bytes((int(found[1], 16),)), text.encode())


if __name__ == "__main__":
    drive(JavaTools)
