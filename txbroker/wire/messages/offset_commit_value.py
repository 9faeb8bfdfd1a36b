"""OffsetCommitValue: versions 0-4. A record of `__consumer_offsets`."""

from __future__ import annotations

from txbroker.wire.schema import Data, Int32, Int64, String, Uuid, v


class OffsetCommitValue(Data, versions="0-4", flexible="4+"):
    offset: Int64
    leader_epoch: Int32 = v("3+", default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = v("1", default=-1, ignorable=True)
    topic_id: Uuid = v("4+", default=bytes(16), tag=0, ignorable=True)
