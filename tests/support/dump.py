"""Apache Kafka's DumpLogSegments reads files of txbroker, and its output is parsed and checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cache import KAFKA_OLD
from tests.support.java import run

# What the tool prints about correct files; any other line reports an error.
_BATCH = re.compile(r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) .*?producerId: (?P<producer>-?\d+) "
                    r".*compresscodec: (?P<codec>\w+) crc: \d+ isvalid: (?P<valid>\w+)")
_RECORD = re.compile(r"\| offset: (?P<offset>\d+) ")
_DUMPING = re.compile(r"Dumping (?P<path>.+)")
_QUIET = re.compile(r"Log starting offset: |offset: \d+ position: |timestamp: -?\d+ offset: |producerId: |version: |.+ is empty\.$|$")
_NAMES_A_CALL = 100_000  # bytes: the length of an argument is limited


class Unacceptable(AssertionError):
    """The tool reported an error in the files."""


@dataclass
class DumpedLog:
    """What the tool read in one .log file: batches as (base offset, last offset, codec, producer id), and the offset of each record."""

    batches: list[tuple[int, int, str, int]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


def dump_directory(data: Path) -> dict[str, DumpedLog]:
    """What the tool read in a log directory, by "topic-partition" over all segments.

    It reads every log, index, time index, transaction index and producer snapshot, and checks one against the other; Unacceptable unless
    it finds all of them right.
    """
    files = sorted(path for kind in ("log", "index", "timeindex", "txnindex", "snapshot") for path in data.glob(f"*-*/*.{kind}"))
    dumped: dict[str, DumpedLog] = {}
    some: list[Path] = []
    for i, path in enumerate(files):
        some.append(path)
        if i + 1 == len(files) or sum(len(str(name)) + 1 for name in some) > _NAMES_A_CALL - 4096:
            _read(_dump(some, "--deep-iteration"), dumped)
            some = []
    return dumped


def dump_offsets(data: Path) -> str:
    """The records of __consumer_offsets as the tool decodes them."""
    return _dump(sorted(data.glob("__consumer_offsets-*/*.log")), "--offsets-decoder")


def dump_records(log: Path) -> str:
    """One log file with keys and values as text."""
    return _dump([log], "--deep-iteration", "--print-data-log")


def _dump(files: Sequence[Path], *options: str) -> str:
    return run("kafka-dump-log", *options, "--files", ",".join(map(str, files)), release=KAFKA_OLD)


def _read(text: str, into: dict[str, DumpedLog]) -> None:
    current = DumpedLog()
    for line in text.splitlines():
        if found := _DUMPING.fullmatch(line):
            current = into.setdefault(Path(found["path"]).parent.name, DumpedLog())
        elif found := _BATCH.match(line):
            if found["valid"] != "true":
                raise Unacceptable(line)
            current.batches.append((int(found["base"]), int(found["last"]), found["codec"], int(found["producer"])))
        elif found := _RECORD.match(line):
            current.offsets.append(int(found["offset"]))
        elif not _QUIET.match(line):
            raise Unacceptable(f"{line}\n...\n{text[-3000:]}")
