"""AddRaftVoter (key 80): versions 0-1, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Request, Response, String, Struct, Uint16, Uuid, v


class Listener(Struct):
    name: String
    host: String
    port: Uint16


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible="0+"):
    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Bool = v("1+", default=True)


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
