"""Runs commands: standard input and output, exit statuses, terminals."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.support.cache import CHECKOUT
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.cli.main import main

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(CHECKOUT)}


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "txbroker", *argv]


def run(*argv: str, stdin: str | bytes = b"", status: int = 0) -> tuple[str, str]:
    """Standard output and error of a command that must exit with `status`. It runs in this process, which is faster than a new one."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    output, complaint = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    with (
        tempfile.TemporaryFile() as file,
        io.TextIOWrapper(file) as source,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(complaint),
        pytest.MonkeyPatch.context() as patch,
    ):
        file.write(given)
        file.seek(0)
        patch.setattr(sys, "stdin", source)
        ended = main(argv)
    assert ended == status, complaint.getvalue()
    output.seek(0)
    return output.buffer.read().decode(errors="surrogateescape"), complaint.getvalue()


def fill(broker: Server, topic: str, counts: dict[int, int]) -> None:
    """Produce `count` records to each partition, with timestamps 1 ms apart."""
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        sent = [
            producer.send(topic, b"%05d" % i, partition=partition, timestamp_ms=1_700_000_000_000 + i)
            for partition, count in counts.items()
            for i in range(count)
        ]
        producer.flush()
        for future in sent:
            future.get(10)


def on_terminal(*argv: str, stdin: Path | None = None, columns: int = 80) -> str:
    """The output of a command on a terminal of `columns`; its exit status must be 0."""
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "COLUMNS": str(columns)}
    with open(stdin or os.devnull, "rb") as given, subprocess.Popen(command(*argv), stdin=given, stdout=theirs, stderr=theirs,
                                                                    env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # on Linux: the other end is closed
            pass
        until(lambda: process.poll() is not None, "the command ends")
    os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode()
