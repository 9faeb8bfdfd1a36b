"""OffsetCommitKey: versions 0-1. A record of `__consumer_offsets`."""

from __future__ import annotations

from txbroker.wire.schema import Data, Int32, String


class OffsetCommitKey(Data, versions="0-1"):
    group: String
    topic: String
    partition: Int32
