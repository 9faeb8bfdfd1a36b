"""Loads of real clients: franz-go (web, stream and pubsub) and librdkafka, each a program of its own with the client's default settings."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any

from bench.measures import ERRORS, GENERATOR, RETRIES, Bench, Figure, Measure, Sample, Settings
from bench.process_tree import CpuMeter
from bench.topics import new_topic
from tests.support import cache
from tests.support.cache import CHECKOUT, Missing
from tests.support.server import Server

CPU = "CPU"
PARTITIONS = 6
CONSUMED = {100: 3_000_000, 1024: 600_000}  # records of a topic that is read, by their size
_FRANZ_GO = Path(__file__).resolve().parent / "franz_go"
_GO_PLACES = ("/usr/local/go/bin",)


class ClientFailed(Exception):
    """A client ended with an error; the message is what it printed."""


@functools.cache
def franz_go() -> Path:
    """The program of the folder franz_go, which Go builds once for each state of its sources; Missing if Go is not installed."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_FRANZ_GO.iterdir()))).hexdigest()
    program = cache.directory() / "bench" / f"franz_go-{digest[:16]}"
    if program.exists():
        return program
    go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), *_GO_PLACES]))
    if go is None:
        raise Missing("Go is not installed: see https://go.dev/doc/install, or on Debian apt-get install golang-go")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as directory:  # others may build and run it at the same time
        fresh = Path(directory) / "franz_go"
        built = subprocess.run([go, "build", "-o", fresh, "."], cwd=_FRANZ_GO, capture_output=True, text=True, check=False)
        if built.returncode:
            raise Missing(f"the clients with franz-go cannot be built:\n{built.stderr}")
        fresh.replace(program)
    return program


def run_client(server: Server, command: Sequence[str | Path]) -> tuple[dict[str, Any], Sample]:
    """What a client has measured, and the broker's CPU time in seconds (CPU) with the conditions.

    The client prints `begin` and `end` around the measured time, then a line of JSON with `seconds`, `errors`, `retries` and `problems`.
    """
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=CHECKOUT) as client,
    ):
        assert client.stdout is not None
        try:
            lines = client.stdout
            if next(lines, "") == "begin\n":
                broker, generator = CpuMeter(server.pid), CpuMeter(client.pid)
                if next(lines, "") == "end\n":
                    sample = {CPU: broker.seconds(), GENERATOR: generator.share()}
                    measured = json.loads(next(lines, "null"))
                    if measured is not None:
                        if measured["problems"]:
                            print(f"{server.kind}: {'; '.join(measured['problems'])}", file=sys.stderr)
                        return measured, {**sample, ERRORS: measured["errors"], RETRIES: measured["retries"]}
        finally:
            client.kill()
        errors.seek(0)
        raise ClientFailed(f"{' '.join(map(str, command))} on {server.kind}: {errors.read().strip()[-2000:]}")


def warm(measure: Callable[[], object], settings: Settings) -> None:
    """Repeat a load of a fixed size for the time that the first measurement needs."""
    end = time.perf_counter() + settings.first_warmup_s
    measure()
    while time.perf_counter() < end:
        measure()


def application(
    load: str, trusted: Path | None = None, address: Callable[[Server], str] = attrgetter("address")
) -> Callable[[Server, Settings], AbstractContextManager[Measure]]:
    """A load of franz-go at a listener of the broker, over TLS if there is a certificate to trust."""

    @contextmanager
    def ready(server: Server, settings: Settings) -> Iterator[Measure]:
        command: list[str | Path] = [franz_go(), "-brokers", address(server), "-load", load]
        if trusted is not None:
            command += ["-trust", trusted]

        def measure(seconds: float) -> Sample:
            times = "-warmup", f"{settings.warmup_s}s", "-duration", f"{seconds}s"
            measured, sample = run_client(server, [*command, *times])
            records, size, measured_s = measured["records"], measured["bytes"], measured["seconds"]
            figures = {"records/s": records / measured_s, "MB/s": size / measured_s / 1e6, "p50": measured["p50"], "p99": measured["p99"]}
            return {**figures, "CPU per record": sample.pop(CPU) / records * 1e6, **sample}

        measure(settings.first_warmup_s)
        yield lambda: measure(settings.seconds)

    return ready


def _librdkafka(server: Server, topic: str, work: str, **values: float) -> list[str]:
    flags = [text for name, value in values.items() for text in (f"--{name}", str(value))]
    return [sys.executable, "-m", "bench.librdkafka", work, "--brokers", server.address, "--topic", topic, *flags]


def _bytes_sample(measured: dict[str, Any], sample: Sample, record_bytes: int) -> Sample:
    size = measured["records"] * record_bytes
    return {"MB/s": size / measured["seconds"] / 1e6, "CPU per GB": sample.pop(CPU) / size * 1e9, **sample}


def _producing(record_bytes: int) -> Callable[[Server, Settings], AbstractContextManager[Measure]]:
    @contextmanager
    def ready(server: Server, settings: Settings) -> Iterator[Measure]:
        numbers = count()  # several brokers may still have the topic that was deleted last

        def measure(seconds: float) -> Sample:
            with new_topic(server, f"librdkafka-produce-{record_bytes}-{next(numbers)}", PARTITIONS) as topic:
                command = _librdkafka(server, topic.name, "produce", bytes=record_bytes, warmup=settings.warmup_s, seconds=seconds)
                return _bytes_sample(*run_client(server, command), record_bytes)

        measure(settings.first_warmup_s)
        yield lambda: measure(settings.seconds)

    return ready


def _consuming(record_bytes: int) -> Callable[[Server, Settings], AbstractContextManager[Measure]]:
    @contextmanager
    def ready(server: Server, settings: Settings) -> Iterator[Measure]:
        records = int(CONSUMED[record_bytes] * settings.scale)
        with new_topic(server, f"librdkafka-consume-{record_bytes}", PARTITIONS) as topic:
            topic.fill_records(records, record_bytes)

            def measure() -> Sample:
                return _bytes_sample(*run_client(server, _librdkafka(server, topic.name, "consume", records=records)), record_bytes)

            warm(measure, settings)
            yield measure

    return ready


PER_BYTE = (Figure("MB/s", "MB/s", target=1.1), Figure("CPU per GB", "s", less=True, digits=2, target=0.6))
APPLICATIONS = (
    Bench(
        "web",
        "franz-go: 40 clients, each waits for its record (acks=all, idempotent, snappy; 50 to 8,000 bytes; 12 partitions of 3 topics)",
        (
            Figure("records/s", "records/s", target=1.1),
            Figure("p50", "ms", less=True, digits=2),
            Figure("p99", "ms", less=True, digits=2, target=0.7),
            Figure("CPU per record", "µs", less=True, digits=1, target=0.75),
        ),
        application("web"),
    ),
    Bench(
        "stream",
        "franz-go: 4 clients with linger 5 ms and lz4 send such records as fast as they are acknowledged",
        (Figure("MB/s", "MB/s", target=1.1, digits=1), Figure("CPU per record", "µs", less=True, digits=2, target=0.8)),
        application("stream"),
    ),
    Bench(
        "pubsub",
        "franz-go: 20 clients send 4,000 such records a second in total, which three groups of two members receive; from send to receive",
        (
            Figure("records/s", "records/s"),
            Figure("p50", "ms", less=True, digits=2, target=0.8),
            Figure("p99", "ms", less=True, digits=2, target=0.7),
            Figure("CPU per record", "µs", less=True, digits=1, target=0.6),
        ),
        application("pubsub"),
    ),
)
BENCHES = (
    *APPLICATIONS,
    *(
        Bench(f"librdkafka-produce-{size}", f"confluent-kafka: a producer, {size}-byte records, 6 partitions", PER_BYTE, _producing(size))
        for size in CONSUMED
    ),
    *(
        Bench(f"librdkafka-consume-{size}", f"confluent-kafka: a group of one member, {size}-byte records", PER_BYTE, _consuming(size))
        for size in CONSUMED
    ),
)
