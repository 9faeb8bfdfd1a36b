"""A consumer of every partition, from its first offset to its last, which fills the ledgers."""

from __future__ import annotations

import threading
from typing import Any

from kafka.protocol.consumer import FetchRequest
from kafka.record import MemoryRecords

from tests.soak.ledgers import Ledgers, PartitionLedger
from tests.support.raw import RawConnection

OFFSET_OUT_OF_RANGE = 1
WAIT_MS = 500
PARTITION_BYTES = 1 << 20


class Reader:
    """One connection that fetches all partitions at once, over and over."""

    def __init__(self, address: str, ledgers: Ledgers) -> None:
        self._address = address
        self._ledgers = ledgers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the current request."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            with RawConnection(self._address, client_id="reader") as connection:
                while not self._stop.is_set():
                    self._fetch(connection)
                    self._ledgers.settle()
        except Exception as error:
            self._ledgers.faults.add(f"the reader failed: {type(error).__name__}: {error}")

    def _fetch(self, connection: RawConnection) -> None:
        topics: dict[str, list[Any]] = {}
        for (topic, number), ledger in self._ledgers.partitions.items():
            topics.setdefault(topic, []).append(FetchRequest.FetchTopic.FetchPartition(
                partition=number, fetch_offset=ledger.position, partition_max_bytes=PARTITION_BYTES))
        request = FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=16 * PARTITION_BYTES, session_epoch=-1, forgotten_topics_data=[],
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()])
        for answer in connection.call(request, 11).responses:
            for part in answer.partitions:
                self._take(self._ledgers.partitions[answer.topic, part.partition_index], part)

    def _take(self, ledger: PartitionLedger, part: Any) -> None:
        ledger.log_start = max(ledger.log_start, part.log_start_offset)
        if part.error_code == OFFSET_OUT_OF_RANGE:
            ledger.skipped_to(self._log_start(ledger))
            return
        if part.error_code:
            self._ledgers.faults.add(f"{ledger.partition}: a fetch returned error {part.error_code}")
            return
        batches = MemoryRecords(bytes(part.records or b""))
        while batches.has_next():
            for record in batches.next_batch():
                if record.offset >= ledger.position:
                    ledger.read(record.offset, record.value)

    def _log_start(self, ledger: PartitionLedger) -> int:
        from tests.soak.admin import log_start

        ledger.log_start = log_start(self._address, *ledger.partition)
        return ledger.log_start
