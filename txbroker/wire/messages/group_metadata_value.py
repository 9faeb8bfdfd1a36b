"""GroupMetadataValue: versions 0-4. A record of `__consumer_offsets`."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Data, Int32, Int64, String, Struct, v


class MemberMetadata(Struct):
    member_id: String
    group_instance_id: String | None = v("3+", default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = v("1+", default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class GroupMetadataValue(Data, versions="0-4", flexible="4+"):
    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = v("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]
