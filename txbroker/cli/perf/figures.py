"""The figures of a load: Kafka's report lines, and the same as objects for --json.

MB are 1024 * 1024 bytes of keys and values here, as in Kafka's tools (ProducerPerformance, ConsumerPerformance).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

MB = 1024 * 1024
PERCENTILES = (0.5, 0.95, 0.99, 0.999)
# The resolution of latencies; that of Kafka's tool is 1 ms.
PARTS_PER_MS = 100


class Latencies:
    """A histogram of latencies. Its size depends on the number of different latencies, not of records."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0
        self._counts: dict[int, int] = {}

    def add(self, latency_ms: float, count: int) -> None:
        """`count` records had this latency."""
        self.count += count
        self.total_ms += latency_ms * count
        if latency_ms > self.max_ms:
            self.max_ms = latency_ms
        key = int(latency_ms * PARTS_PER_MS)
        self._counts[key] = self._counts.get(key, 0) + count

    @property
    def average_ms(self) -> float:
        """The mean; 0 without records."""
        return self.total_ms / self.count if self.count else 0.0

    def percentiles_ms(self) -> list[float]:
        """The latencies at PERCENTILES of the sorted records."""
        found: list[float] = []
        seen = 0
        for key in sorted(self._counts):
            seen += self._counts[key]
            while len(found) < len(PERCENTILES) and seen > int(PERCENTILES[len(found)] * self.count):
                found.append(key / PARTS_PER_MS)
        return found or [0.0] * len(PERCENTILES)


class Sent(NamedTuple):
    """The records sent from `start_s` to `end_s`, in seconds of a monotonic clock."""

    records: int
    bytes: int
    start_s: float
    end_s: float
    latencies: Latencies

    @property
    def records_per_s(self) -> float:
        """The rate over the whole time."""
        return self.records / max(self.end_s - self.start_s, 1e-3)

    @property
    def mb_per_s(self) -> float:
        """Megabytes of values per second."""
        return self.bytes / MB / max(self.end_s - self.start_s, 1e-3)

    def interval_line(self) -> str:
        """The line of Kafka's tool for an interval."""
        latency = f"{self.latencies.average_ms:.1f} ms avg latency, {self.latencies.max_ms:.1f} ms max latency."
        return f"{self.records} records sent, {self.records_per_s:.1f} records/sec ({self.mb_per_s:.2f} MB/sec), {latency}"

    def total_line(self, what: str = "records sent") -> str:
        """The line of Kafka's tool for the total."""
        latency = f"{self.latencies.average_ms:.2f} ms avg latency, {self.latencies.max_ms:.2f} ms max latency"
        names = ("50th", "95th", "99th", "99.9th")
        percentiles = ", ".join(f"{int(ms)} ms {name}" for ms, name in zip(self.latencies.percentiles_ms(), names, strict=True))
        return f"{self.records} {what}, {self.records_per_s:f} records/sec ({self.mb_per_s:.2f} MB/sec), {latency}, {percentiles}."

    def row(self, kind: str) -> dict[str, Any]:
        """The same for --json."""
        p50, p95, p99, p999 = self.latencies.percentiles_ms()
        return {
            "kind": kind, "records": self.records, "bytes": self.bytes, "seconds": round(self.end_s - self.start_s, 6),
            "records_per_s": round(self.records_per_s, 3), "mb_per_s": round(self.mb_per_s, 4),
            "latency_avg_ms": round(self.latencies.average_ms, 3), "latency_max_ms": round(self.latencies.max_ms, 3),
            "latency_p50_ms": p50, "latency_p95_ms": p95, "latency_p99_ms": p99, "latency_p999_ms": p999,
        }  # fmt: skip


class Read(NamedTuple):
    """The records read from `start_s` to `end_s` (wall clock); of this time, `joining_ms` were spent on joining the group."""

    records: int
    bytes: int
    start_s: float
    end_s: float
    joining_ms: int

    @property
    def _seconds(self) -> float:
        return max(self.end_s - self.start_s, 1e-3)

    @property
    def fetching_ms(self) -> int:
        """The time without joining."""
        return int(self._seconds * 1000) - self.joining_ms

    def _rates(self) -> tuple[float, float, float, float]:
        fetching_s = max(self.fetching_ms, 1) / 1000
        mb = self.bytes / MB
        return mb / self._seconds, self.records / self._seconds, mb / fetching_s, self.records / fetching_s

    def total_line(self) -> str:
        """The line of Kafka's tool, under `HEADER`."""
        mb_s, records_s, fetch_mb_s, fetch_records_s = self._rates()
        return (
            f"{time_text(self.start_s)}, {time_text(self.end_s)}, {self.bytes / MB:.4f}, {mb_s:.4f}, {self.records}, {records_s:.4f}, "
            f"{self.joining_ms}, {self.fetching_ms}, {fetch_mb_s:.4f}, {fetch_records_s:.4f}"
        )

    def interval_line(self, so_far: Read) -> str:
        """The line of --show-detailed-stats, under `HEADER_DETAILED`: the totals of `so_far`, the rates of this interval."""
        mb_s, records_s, fetch_mb_s, fetch_records_s = self._rates()
        return (
            f"{time_text(self.end_s)}, 0, {so_far.bytes / MB:.4f}, {mb_s:.4f}, {so_far.records}, {records_s:.4f}, "
            f"{self.joining_ms}, {self.fetching_ms}, {fetch_mb_s:.4f}, {fetch_records_s:.4f}"
        )

    def row(self, kind: str) -> dict[str, Any]:
        """The same for --json."""
        mb_s, records_s, fetch_mb_s, fetch_records_s = self._rates()
        return {
            "kind": kind, "records": self.records, "bytes": self.bytes, "seconds": round(self._seconds, 6),
            "records_per_s": round(records_s, 3), "mb_per_s": round(mb_s, 4), "rebalance_ms": self.joining_ms,
            "fetch_ms": self.fetching_ms, "fetch_records_per_s": round(fetch_records_s, 3), "fetch_mb_per_s": round(fetch_mb_s, 4),
        }  # fmt: skip


_REST = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER = f"start.time, end.time, {_REST}"
HEADER_DETAILED = f"time, threadId, {_REST}"


def time_text(seconds: float) -> str:
    """Kafka's default --date-format: yyyy-MM-dd HH:mm:ss:SSS, local time."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}:{int(seconds * 1000) % 1000:03}"
