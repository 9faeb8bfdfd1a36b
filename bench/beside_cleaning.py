"""The effect of a busy log cleaner on producers: latencies of one-record produces without cleaning and during it.

Both brokers clean the same log of several partitions with one worker, from before the load begins until after it ends. A broker that
finishes earlier needs a larger log.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench import requests
from bench.brokers import DEFAULTS, KAFKA, MeasuredKafka, MeasuredTxbroker
from bench.cleaning import BATCH_RECORDS, CLEANING, OVERRIDES, SEGMENT_BYTES, batches
from bench.measures import Bench, Figure, Measure, Sample, Settings
from bench.rawload import Load, run
from bench.requests import BrokerClient, frame
from tests.support.server import HOST, Server
from txbroker.wire.compression import Codec

PARTITIONS = 8
RECORDS = 1_500_000  # per partition: some seconds of cleaning
KEYS = 500_000
CONNECTIONS = 16
RECORD_BYTES = 100
_TOPIC, _PRODUCED = "cleaned", "produced"
_WAIT_S = 600.0


class TooLittle(Exception):
    """The cleaner finished before the load did."""


def _cleaned(data: Path) -> int:
    """The number of partitions that are clean."""
    path = data / "cleaner-offset-checkpoint"
    return path.read_text().count(f"{_TOPIC} ") if path.exists() else 0


@contextmanager
def _beside(server: Server, settings: Settings) -> Iterator[Measure]:
    directory = server.directory.with_name(f"{server.kind}-beside-cleaning")
    kind = MeasuredKafka if server.kind == KAFKA else MeasuredTxbroker
    count = int(RECORDS * settings.scale) // BATCH_RECORDS

    def measure() -> Sample:
        broker = kind(directory, {**DEFAULTS, **OVERRIDES})
        try:
            broker.start()
            with BrokerClient(broker.address, timeout_s=_WAIT_S) as client:
                topic_id = client.create_topic(_TOPIC, PARTITIONS, {"segment.bytes": str(SEGMENT_BYTES)})
                for partition in range(PARTITIONS):
                    client.append(topic_id, partition, batches(count, KEYS, Codec.NONE))
                client.alter_topic(_TOPIC, {"segment.ms": "1"})  # the next record closes the segment
                time.sleep(0.1)
                for partition in range(PARTITIONS):
                    client.append(topic_id, partition, batches(1, KEYS, Codec.NONE))
                produced = client.create_topic(_PRODUCED, 1)
                frames = [[frame(requests.produce(produced, 0, requests.batch(1, RECORD_BYTES)))]]
                load = Load(HOST, broker.port, frames, CONNECTIONS, 1, settings.seconds / 2, settings.warmup_s)
                run(replace(load, seconds=settings.first_warmup_s))
                idle = run(load)
                client.alter_topic(_TOPIC, CLEANING)
                busy = run(load)
                if _cleaned(broker.data) == PARTITIONS:
                    raise TooLittle(f"{server.kind} cleaned all {PARTITIONS} partitions before the load ended")
                return {
                    "p99 without cleaning": idle.p99_ms,
                    "p99 during cleaning": busy.p99_ms,
                    "p99 grows": busy.p99_ms / idle.p99_ms,
                    "p50 during cleaning": busy.p50_ms,
                    "requests/s": busy.answers_per_s,
                }
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)

    yield measure


BENCHES = (
    Bench(
        "cleaner-beside",
        f"{CONNECTIONS} connections x 1 request in flight, {RECORD_BYTES}-byte records, while another topic is cleaned; p99 may grow 2 x",
        (
            Figure("p99 without cleaning", "ms", less=True, digits=2),
            Figure("p99 during cleaning", "ms", less=True, digits=2, target=1.0),
            Figure("p99 grows", "x", less=True, digits=2),
            Figure("p50 during cleaning", "ms", less=True, digits=2),
            Figure("requests/s", "requests/s"),
        ),
        _beside,
    ),
)
