"""Reading the topic with other programs: kcat, Apache Kafka's console consumer, Spark. Their output is framed, so that every byte
of a record arrives unchanged, newlines included."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from compat.demo.failure import DemoFailed
from compat.demo.source import STALL_S, Source, Take
from tests.support import java
from tests.support.cache import CHECKOUT, KAFKA_NEW, KAFKA_OLD

# One line of numbers (a length is -1 for null), then key and value unchanged.
_KCAT_FORMAT = "%p %o %K %S\\n%k%s\\n"

# Bytes.toString of Kafka writes the backslash and all bytes that are not printable ASCII as \xNN: newlines and tabs belong to the format.
_ESCAPING = "org.apache.kafka.common.serialization.BytesDeserializer"
_ESCAPED = re.compile(rb"\\x([0-9A-F]{2})")
_CONSOLE_LINE = re.compile(rb"Partition:(\d+)\tOffset:(\d+)\t([^\t]*)\t([^\t]*)\n")


def read_with_kcat(source: Source, take: Take) -> None:
    """kcat: `-G` with a group, else `-C` from offset 0 of every partition to its end."""
    program = shutil.which("kcat")
    if program is None:
        raise DemoFailed("kcat is not installed: on Debian, apt-get install kcat")
    options = ["-b", source.address, "-q", "-e", "-f", _KCAT_FORMAT, "-X", "check.crcs=true"]
    if source.group:
        command = [program, *options, "-X", "auto.offset.reset=earliest", "-G", source.group, source.topic]
    else:
        command = [program, *options, "-C", "-t", source.topic, "-o", "0"]
    with _output(command) as output:
        for partition, offset, key, value in _framed(output):
            take(partition, offset, key, value)


def console_consumer_reader(release: str) -> Callable[[Source, Take], None]:
    """Reading with the Java console consumer of one release of Apache Kafka."""
    return lambda source, take: _read_with_console_consumer(release, source, take)


def _read_with_console_consumer(release: str, source: Source, take: Take) -> None:
    """Runs once with a group; without one, once per partition from offset 0."""
    if source.group:
        _console_consumer(release, source, take, ["--group", source.group, "--from-beginning"], source.count)
        return
    for partition, end in sorted(source.ends.items()):
        _console_consumer(release, source, take, ["--partition", str(partition), "--offset", "0"], end)


def _console_consumer(release: str, source: Source, take: Take, arguments: list[str], count: int) -> None:
    formatting = "--formatter-property" if release == KAFKA_NEW else "--property"
    for setting in ("print.partition", "print.offset", "print.key"):
        arguments = [*arguments, formatting, f"{setting}=true"]
    command = java.command("kafka-console-consumer", release, [
        "--bootstrap-server", source.address, "--topic", source.topic, "--max-messages", str(count), "--timeout-ms", f"{STALL_S:.0f}000",
        "--key-deserializer", _ESCAPING, "--value-deserializer", _ESCAPING, *arguments,
    ])
    with _output(command) as output:
        for line in output:
            matched = _CONSOLE_LINE.fullmatch(line)
            if matched is None:
                raise DemoFailed(f"the console consumer printed {line[:200]!r}")
            partition, offset, key, value = matched.groups()
            take(int(partition), int(offset), _unescaped(key), _unescaped(value))


def read_with_spark(source: Source, take: Take) -> None:
    """Spark's Kafka source, a batch from offset 0 to the ends, in a separate process."""
    ends = [f"{partition}:{end}" for partition, end in sorted(source.ends.items())]
    with _output([sys.executable, "-m", "compat.demo.spark_job", source.address, source.topic, *ends]) as output:
        for partition, offset, key, value in _framed(output):
            take(partition, offset, key, value)


RELEASES = {"console consumer 3.9.1": KAFKA_OLD, "console consumer 4.3.1": KAFKA_NEW}


def _unescaped(text: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes((int(found[1], 16),)), text)


def _framed(output: IO[bytes]) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    while line := output.readline():
        partition, offset, key_size, value_size = map(int, line.split())
        key, value = _sized(output, key_size), _sized(output, value_size)
        if output.readline() != b"\n":
            raise DemoFailed(f"partition {partition}, offset {offset}: the record is longer than its length says")
        yield partition, offset, key, value


def _sized(output: IO[bytes], size: int) -> bytes | None:
    return None if size < 0 else output.read(size)


@contextmanager
def _output(command: list[str]) -> Iterator[IO[bytes]]:
    """The output of a program, as it arrives. DemoFailed with its standard error unless it exits with 0. A hanging one is killed."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, env=environment)
        assert process.stdout is not None
        watchdog = threading.Timer(10 * STALL_S, process.kill)
        watchdog.start()
        try:
            yield process.stdout
            status = process.wait()
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
        if status != 0:
            complaints.seek(0)
            raise DemoFailed(f"{command[0]} ended with {status}: {complaints.read()[-2000:].decode(errors='replace')}")
