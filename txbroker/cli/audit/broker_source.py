"""Reads a topic from the leaders of its partitions, with Fetch: raw batches, up to an end that is fixed before the first fetch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txbroker.cli.audit.record_rows import Bounds, Chunk
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import ClientSecurity
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_reader import READ_COMMITTED, READ_UNCOMMITTED, TopicReader
from txbroker.console.failures import CommandFailed
from txbroker.console.topic_order import topic_order
from txbroker.errors import ErrorCode
from txbroker.log.aborted_transactions import aborted_in
from txbroker.log.cleaner.compaction_order import CompactionOrder

CLIENT = ClientSettings("txbroker-audit")


class BrokerTopic:
    """A topic of a cluster. `committed_only`: up to the last stable offset and without aborted records, else up to the high watermark."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], name: str, committed_only: bool, security: ClientSecurity | None = None
    ) -> None:
        self.name = name
        self._committed_only = committed_only
        isolation = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        self._reader = TopicReader(addresses, name, CLIENT._replace(security=security), isolation)

    def close(self) -> None:
        """Close all connections."""
        self._reader.close()

    def order(self) -> CompactionOrder:
        """Which record of a key is the latest."""
        return topic_order(self._reader)

    def bounds(self) -> Mapping[int, Bounds]:
        """First and end offset of each partition, now."""
        reader = self._reader
        return {index: Bounds(reader.offset(index, EARLIEST), reader.offset(index, LATEST)) for index in reader.partitions}

    def read(self, partition: int, offset: int, end: int) -> Chunk | None:
        """Batches from an offset on, or from the first one if that has been deleted meanwhile; None when there is none before the end."""
        while True:
            data = self._reader.fetch(partition, offset)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                first = self._reader.offset(partition, EARLIEST)
                if first <= offset:
                    raise CommandFailed(f"partition {partition} of {self.name} has no offset {offset} any more; run this again")
                offset = first
                if offset < end:
                    continue
                return None
            if not data.records:
                if data.high_watermark >= end:
                    return None
                what = f"partition {partition} of {self.name} ends at offset {offset} and not at {end} as before"
                raise CommandFailed(f"{what}: the log was truncated; run this again")
            assert isinstance(data.records, memoryview)
            return Chunk(data.records, offset, aborted_in(data) if self._committed_only else [])
