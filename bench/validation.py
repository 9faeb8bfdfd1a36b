"""The cost of record validation, in this process: `python -m bench.validation`.

For each kind of batch: appends to a log with txbroker.record.validation bounded and full, as microseconds of CPU per batch, and the
nanoseconds per record that full adds. Each figure is the minimum of several rounds, because other processes only add time. The last line
says whether the walk over records is compiled (setup.py).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable

from bench.requests import FIRST_TIMESTAMP
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.os_disk import OsDisk
from txbroker.names import TopicPartition
from txbroker.wire.compression import Codec
from txbroker.wire.records import WALK_IS_COMPILED, Record, build

ROUNDS = 15
ROUND_S = 0.02
NOW_MS = FIRST_TIMESTAMP
KINDS = {
    "1 record of 100 bytes": (1, 100, Codec.NONE),
    "50 records of 100 bytes": (50, 100, Codec.NONE),
    "1,000 records of 100 bytes": (1000, 100, Codec.NONE),
    "1,000 records of 1 KiB": (1000, 1024, Codec.NONE),
    "1,000 records of 100 bytes, lz4": (1000, 100, Codec.LZ4),
    "1,000 records of 100 bytes, snappy": (1000, 100, Codec.SNAPPY),
    "1,000 records of 100 bytes, zstd": (1000, 100, Codec.ZSTD),
    "1,000 records of 100 bytes, gzip": (1000, 100, Codec.GZIP),
}


def _records(count: int, value_bytes: int) -> list[Record]:
    """Text that compresses to about a third."""
    words = ("order", "customer", "created", "shipped", "amount", "currency", "2026-11-22T10:00:00Z")
    made = []
    for index in range(count):
        chosen = (words[(index * 31 + n * n * 7) % len(words)] + str(index * n % 977) for n in range(200))
        text = f"{index * 7919 % 100_003:06d}" + "".join(chosen)
        made.append(Record(index, NOW_MS + index // 100, b"%010d" % index, text.encode()[:value_bytes]))
    return made


def least_us(action: Callable[[], object]) -> float:
    """CPU of one call in microseconds."""
    begun, calls = time.process_time(), 0
    while time.process_time() - begun < ROUND_S:
        action()
        calls += 1
    least = 1e9
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(calls):
            action()
        least = min(least, (time.process_time() - begun) / calls)
    return least * 1e6


def main() -> None:
    """Print a table in Markdown."""
    directory = tempfile.mkdtemp(prefix="txbroker-validation-")
    print("| batch | bounded, µs | full, µs | full adds, ns a record |\n|---|---|---|---|")
    try:
        for name, (count, value_bytes, codec) in KINDS.items():
            data = memoryview(bytearray(build(_records(count, value_bytes), codec=codec)))
            costs = []
            for full in (False, True):
                config = LogConfig(max_message_bytes=4 << 20, record_validation_full=full)
                log = Log.open(f"{directory}/t-0", TopicPartition("t", 0), disk=OsDisk(), config=config, now_ms=NOW_MS)

                def append(log: Log = log, data: memoryview = data) -> None:
                    data[:8] = bytes(8)  # the base offset of the append before
                    log.append(data, leader_epoch=0, now_ms=NOW_MS)
                    if log.size > 256 << 20:
                        log.truncate_fully_at(0, now_ms=NOW_MS)

                costs.append(least_us(append))
                log.delete()
            print(f"| {name} | {costs[0]:.1f} | {costs[1]:.1f} | {(costs[1] - costs[0]) / count * 1000:.0f} |")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"\nThe walk over records is {'compiled' if WALK_IS_COMPILED else 'plain Python'}.")


if __name__ == "__main__":
    main()
