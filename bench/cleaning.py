"""The log cleaner: the same keyed log on both brokers, and how long one worker takes from the change of policy to the checkpoint.

A change of `cleanup.policy` triggers the cleaning; both brokers look for work every few milliseconds here. In that time both find the
log, read it twice, write and sync the remaining records, and swap the segments.
"""

from __future__ import annotations

import random
import shutil
import string
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.brokers import DEFAULTS, KAFKA, MeasuredKafka, MeasuredTxbroker
from bench.measures import Bench, Figure, Measure, Sample, Settings
from bench.process_tree import cpu_seconds, tree
from bench.requests import FIRST_TIMESTAMP, BrokerClient
from tests.support.server import Server
from txbroker.wire.batch import HEADER_SIZE, read_header, seal
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record, build, recompress

RECORDS = 5_000_000
KEYS = 500_000
BATCH_RECORDS = 140
VALUE_BYTES = 96  # 118 bytes per record, with its key, lengths and deltas
SEGMENT_BYTES = 1 << 28
BACKOFF_MS = 20
WAIT_S = 600.0
_TOPIC = "cleaned"
_PLACEHOLDER = b"############"
CLEANING = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
OVERRIDES = {**DEFAULTS, "log.cleaner.backoff.ms": str(BACKOFF_MS), "log.cleaner.threads": "1"}


def batches(count: int, keys: int, codec: Codec) -> Iterator[bytes]:
    """Batches of records with random keys, the same in every run: one batch whose keys are replaced."""
    chance = random.Random(1)
    values = ["".join(chance.choices(string.printable, k=VALUE_BYTES)).encode() for _ in range(BATCH_RECORDS)]
    pattern = bytearray(build([Record(n, FIRST_TIMESTAMP + n, _PLACEHOLDER, value) for n, value in enumerate(values)]))
    places, at = [], HEADER_SIZE
    while (at := pattern.find(_PLACEHOLDER, at)) > 0:
        places.append(at)
        at += len(_PLACEHOLDER)
    assert len(places) == BATCH_RECORDS
    for _ in range(count):
        for place in places:
            pattern[place : place + len(_PLACEHOLDER)] = b"key-%08d" % chance.randrange(keys)
        seal(pattern, 0, len(pattern))
        yield bytes(pattern) if codec is Codec.NONE else recompress(pattern, 0, read_header(pattern), codec, len(pattern))


@dataclass
class Processes:
    """A broker and its child processes."""

    pid: int

    def peak_mb(self) -> float:
        """The sum of the peak resident memory of each process."""
        return sum(_peak_mb(pid) for pid in tree(self.pid))

    def cpu_s(self) -> float:
        return cpu_seconds(self.pid)


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def _is_cleaned(data: Path) -> bool:
    path = data / "cleaner-offset-checkpoint"
    return path.exists() and f"{_TOPIC} 0 " in path.read_text()


def _log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


@contextmanager
def _clean(server: Server, settings: Settings, *, codec: Codec) -> Iterator[Measure]:
    """Starts a separate broker that has this log only."""
    directory = server.directory.with_name(f"{server.kind}-cleaning")
    kind = MeasuredKafka if server.kind == KAFKA else MeasuredTxbroker
    records = int(RECORDS * settings.scale)

    def measure() -> Sample:
        broker = kind(directory, OVERRIDES)
        try:
            broker.start()
            with BrokerClient(broker.address, timeout_s=WAIT_S) as client:
                topic_id = client.create_topic(_TOPIC, 1, {"segment.bytes": str(SEGMENT_BYTES)})
                client.append(topic_id, 0, batches(records // BATCH_RECORDS, records * KEYS // RECORDS, codec))
                client.alter_topic(_TOPIC, {"segment.ms": "1"})  # the next record closes the segment
                time.sleep(0.1)
                client.append(topic_id, 0, batches(1, KEYS, codec))
                size = _log_bytes(broker.partition_directory(_TOPIC))
                processes = Processes(broker.pid)
                cpu = processes.cpu_s()
                begun = time.perf_counter()
                client.alter_topic(_TOPIC, CLEANING)
                while not _is_cleaned(broker.data):
                    if time.perf_counter() - begun > WAIT_S:
                        raise TimeoutError(f"{server.kind} did not clean its log within {WAIT_S:.0f} s")
                    time.sleep(0.005)
                seconds = time.perf_counter() - begun
                left = _log_bytes(broker.partition_directory(_TOPIC))
                return {
                    "MB/s": size / seconds / 1e6,
                    "records/s": records / seconds / 1e3,
                    "CPU": processes.cpu_s() - cpu,
                    "memory": processes.peak_mb(),
                    "left": left / size * 100,
                }
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)

    yield measure


_FIGURES = (
    Figure("MB/s", "MB/s", target=2.0),
    Figure("records/s", "thousand/s", target=2.0),
    Figure("CPU", "s", less=True, digits=1),
    Figure("memory", "MB peak", less=True, target=0.5),
    Figure("left", "% of the log", less=True, digits=1),
)
_WHAT = f"{RECORDS / 1e6:.0f} million records of 118 bytes over {KEYS // 1000} thousand keys, one worker, until the checkpoint is written"
BENCHES = (
    Bench("cleaner", _WHAT, _FIGURES, partial(_clean, codec=Codec.NONE)),
    Bench("cleaner-lz4", f"{_WHAT}, lz4", _FIGURES, partial(_clean, codec=Codec.LZ4)),
)
