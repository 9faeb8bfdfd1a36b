"""Records of `__share_group_state` (KIP-932). The version of a key says what the record is."""

from __future__ import annotations

from txbroker.wire.schema import Data, Int8, Int16, Int32, Int64, String, Struct, Uuid, v


class ShareSnapshotKey(Data, versions="0"):
    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotStateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class ShareSnapshotValue(Data, versions="0", flexible="0+"):
    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = v(default=-1, tag=0)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[ShareSnapshotStateBatch]


class ShareUpdateKey(Data, versions="1"):
    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateStateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class ShareUpdateValue(Data, versions="0", flexible="0+"):
    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = v(default=-1, tag=0)
    state_batches: list[ShareUpdateStateBatch]
