"""Look-ups per second, in this process: `python -m bench.lookups`.

A segment of 2,000 batches has an entry in each index for nearly every batch. Random offsets and timestamps are looked up in the indexes
alone, without opening the log file, and then whole look-ups by time are made, which read one batch and walk its records.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable

from bench import requests
from bench.requests import FIRST_TIMESTAMP
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.os_disk import OsDisk
from txbroker.names import TopicPartition

BATCHES = 2000
BATCH_RECORDS = 50
LOOKUPS = 200_000
ROUNDS = 5


def _rate(look_up: Callable[[int], object], wanted: list[int]) -> float:
    """The best of several rounds: other processes only make it slower."""
    best = 0.0
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for value in wanted:
            look_up(value)
        best = max(best, len(wanted) / (time.perf_counter() - begun))
    return best


def main() -> None:
    """Print the rates."""
    directory = tempfile.mkdtemp(prefix="txbroker-lookups-")
    try:
        log = Log.open(directory, TopicPartition("t", 0), disk=OsDisk(), config=LogConfig(), now_ms=0)
        for number in range(BATCHES):
            made = requests.batch(BATCH_RECORDS, 100, FIRST_TIMESTAMP + number * BATCH_RECORDS)
            log.append(memoryview(bytearray(made)), leader_epoch=0, now_ms=FIRST_TIMESTAMP)
        chance = random.Random(1)
        wanted = [chance.randrange(log.log_end_offset) for _ in range(LOOKUPS)]
        segment = log.segments[0]
        print(f"offset index, {segment.offset_index.count} entries: {_rate(segment.offset_index.lookup, wanted):,.0f} look-ups/s")
        times = [FIRST_TIMESTAMP + value for value in wanted]
        print(f"time index, {segment.time_index.count} entries: {_rate(segment.time_index.lookup, times):,.0f} look-ups/s")
        print(f"offsets by time: {_rate(log.offset_for_timestamp, times[: LOOKUPS // 10]):,.0f} look-ups/s")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
