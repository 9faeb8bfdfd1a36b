"""Reads the records of a partition of `__consumer_offsets`: groups and their offsets."""

from __future__ import annotations

from txbroker.coordinators.replay import Replay
from txbroker.groups.group_effects import GroupRecord
from txbroker.groups.group_offsets import GroupOffsets
from txbroker.groups.group_records import GroupEntry, OffsetEntry, read
from txbroker.names import OFFSETS_TOPIC
from txbroker.wire.control import Marker
from txbroker.wire.records import Record


class GroupReplay(Replay):
    """The groups and offsets of one partition."""

    def __init__(self) -> None:
        super().__init__(OFFSETS_TOPIC)
        self.groups: dict[str, GroupRecord] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.transactions: dict[int, set[str]] = {}  # producer id -> groups with offsets in its open transaction

    def record(self, record: Record, producer_id: int | None) -> bool:
        """A group's record, or an offset's."""
        match read(record.key, record.value):
            case None:
                return False
            case GroupEntry(group_id, None):
                self.groups.pop(group_id, None)
            case GroupEntry(group_id, group):
                assert group is not None
                self.groups[group_id] = group
            case OffsetEntry(group_id, partition, offset):
                offsets = self.offsets.setdefault(group_id, GroupOffsets())
                if producer_id is None:
                    offsets.replay(partition, offset)
                else:
                    self.transactions.setdefault(producer_id, set()).add(group_id)
                    offsets.replay_transactional(producer_id, partition, offset)
        return True

    def marker(self, producer_id: int, marker: Marker) -> None:
        """The offsets of the transaction are committed or dropped."""
        for group_id in self.transactions.pop(producer_id, ()):
            self.offsets[group_id].end_transaction(producer_id, marker.committed)
