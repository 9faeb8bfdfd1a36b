"""Topics of many partitions, which take a while to make: who asks for something else is not held up."""

from __future__ import annotations

import select

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from tests.support.raw import RawConnection
from tests.support.server import Server

PARTITIONS = 300
OTHERS = 20


def test_others_are_served_while_a_large_topic_is_made(broker: Server, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=False)
    with RawConnection(broker.address) as admin, RawConnection(broker.address) as other:
        admin.send(request, 5)
        served = 0
        while served < OTHERS and not select.select([admin], [], [], 0)[0]:
            other.call(ApiVersionsRequest(), 2)
            served += 1
        created = admin.receive(request)
        assert [t.error_code for t in created.topics] == [0]
        assert served == OTHERS, f"only {served} requests were served before the topic was made"
