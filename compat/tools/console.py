"""kafka-console-producer and kafka-console-consumer: every byte that is written is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from compat.samples import ANY_TIME, Record, check_records, equal, sample_records
from compat.simple import CODECS, ready_topic
from compat.tools.bench import Bench

_NULL = "<null>"
# Prints the backslash, and bytes that are not printable ASCII, as \xNN.
_ESCAPING = "org.apache.kafka.common.serialization.BytesDeserializer"
_LINE = re.compile(r"CreateTime:(\d+)\tPartition:(\d+)\tOffset:(\d+)\t([^\t]*)\t([^\t]*)\t([^\t]*)")
_COUNT = 40


def console_producer(bench: Bench, topic: str) -> None:
    for codec in CODECS:
        _produced(bench, f"{topic}-{codec}", "--compression-codec", codec, "--batch-size", "4000")
    _produced(bench, f"{topic}-one", "--request-required-acks", "1", "--sync")
    _produced(bench, f"{topic}-zero", "--request-required-acks", "0", "--producer-property" if not bench.new else "--command-property",
              "enable.idempotence=false")
    ready_topic(bench.single, topic)
    bench.run("console-producer", "--topic", topic, stdin="one\ntwo\n\nждём\n")
    equal([record.value for record in bench.single.read(topic, 4)], [b"one", b"two", b"", "ждём".encode()], "lines")


def _produced(bench: Bench, topic: str, *arguments: str) -> None:
    ready_topic(bench.single, topic)
    records = _texts(_COUNT)
    lines = "".join(f"{_header_text(record)}\t{_text(record.key)}\t{_text(record.value)}\n" for record in records)
    reader = "--reader-property" if bench.new else "--property"
    settings = ("parse.key=true", "parse.headers=true", f"null.marker={_NULL}")
    bench.run("console-producer", "--topic", topic, *arguments, *(part for setting in settings for part in (reader, setting)), stdin=lines)
    check_records(bench.single.read(topic, len(records)), records)


def _texts(count: int) -> list[Record]:
    """Text of several scripts, null values, empty ones, headers, and long lines."""
    made = []
    for i in range(count):
        key = None if i % 7 == 3 else f"key-{i % 5} ключ".encode()
        value = None if key and i % 11 == 4 else b"" if i % 13 == 5 else f"value {i} значение 🗝 \\ ".encode() * (1 + i % 50)
        headers = (("trace", b"%d" % i), ("again", b"1"), ("again", "два".encode())) if i % 3 else ()
        made.append(Record(0, i, ANY_TIME, key, value, headers))
    return made


def _text(part: bytes | None) -> str:
    return _NULL if part is None else part.decode()


def _header_text(record: Record) -> str:
    return ",".join(f"{name}:{(value or b'').decode()}" for name, value in record.headers) or _NULL


def console_consumer(bench: Bench, topic: str) -> None:
    ready_topic(bench.plain, topic)
    records = sample_records(99)
    bench.plain.produce(topic, records, codec="lz4")
    everything = _consumed(bench, "--topic", topic, "--from-beginning", "--max-messages", "99")
    check_records(everything, records)
    part = _consumed(bench, "--topic", topic, "--partition", "1", "--offset", "20", "--max-messages", "13")
    check_records(part, [record for record in records if record.partition == 1 and record.offset >= 20])
    check_records(_consumed(bench, "--include", f"{topic[:-1]}.", "--from-beginning", "--max-messages", "99"), records)
    _groups(bench, topic, records)
    ended = bench.run("console-consumer", "--topic", topic, "--partition", "0", "--offset", "30", "--timeout-ms", "2000",
                      "--isolation-level", "read_committed", "--value-deserializer", _ESCAPING)
    assert "Processed a total of 3 messages" in ended.err, ended.err


def _groups(bench: Bench, topic: str, records: Sequence[Record]) -> None:
    """A group continues where it stopped, and its commits are in __consumer_offsets."""
    group = f"{topic}-group"
    first = _consumed(bench, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "40")
    second = _consumed(bench, "--topic", topic, "--group", group, "--max-messages", "59")
    check_records([*first, *second], records)
    equal(bench.group_offsets(group), {0: 33, 1: 33, 2: 33}, "committed offsets")
    printed = bench.run("console-consumer", "--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "3000", "--formatter",
                        "org.apache.kafka.tools.consumer.OffsetsMessageFormatter").out
    commits = [commit for commit in _objects(printed) if commit["key"]["data"]["group"] == group]
    last = {commit["key"]["data"]["partition"]: commit["value"]["data"]["offset"] for commit in commits}
    equal(last, {0: 33, 1: 33, 2: 33}, "the last commits in __consumer_offsets")


def _objects(text: str) -> Iterator[Any]:
    """JSON objects without commas or newlines between them."""
    decoder, place = json.JSONDecoder(), 0
    while place < len(text.rstrip()):
        found, place = decoder.raw_decode(text, place)
        yield found


def _consumed(bench: Bench, *arguments: str) -> list[Record]:
    settings = [f"print.{part}=true" for part in ("timestamp", "partition", "offset", "headers", "key")]
    settings += [f"null.literal={_NULL}", f"headers.deserializer={_ESCAPING}"]
    formatter = "--formatter-property" if bench.new else "--property"
    options = [part for setting in settings for part in (formatter, setting)]
    output = bench.out("console-consumer", "--timeout-ms", "30000", "--key-deserializer", _ESCAPING, "--value-deserializer", _ESCAPING,
                       *options, *arguments)
    return [_record(line) for line in output.split("\n") if line]


def _record(line: str) -> Record:
    matched = _LINE.fullmatch(line)
    assert matched is not None, f"the console consumer printed {line[:200]!r}"
    timestamp, partition, offset, headers, key, value = matched.groups()
    entries = [entry.partition(":") for entry in headers.split(",")] if headers != "NO_HEADERS" else []
    found = tuple((name, _part(text)) for name, _, text in entries)
    return Record(int(partition), int(offset), int(timestamp), _part(key), _part(value), found)


def _part(text: str) -> bytes | None:
    if text == _NULL:
        return None
    return re.sub(rb"\\x([0-9A-F]{2})", lambda found: bytes((int(found[1], 16),)), text.encode())
