"""DeleteTopics (key 20): versions 0-6, flexible from 4."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Request, Response, String, Struct, Uuid, v


class DeleteTopicState(Struct):
    name: String | None = v("6+", default=None)
    topic_id: Uuid = v("6+", default=bytes(16))


class DeleteTopicsRequest(Request, key=20, versions="0-6", flexible="4+"):
    topics: list[DeleteTopicState] = v("6+", factory=list)
    topic_names: list[String] = v("0-5", factory=list, ignorable=True)
    timeout_ms: Int32


class DeletableTopicResult(Struct):
    name: String | None = v(nullable="6+")
    topic_id: Uuid = v("6+", default=bytes(16), ignorable=True)
    error_code: Int16
    error_message: String | None = v("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult]
