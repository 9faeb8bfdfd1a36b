"""Every limit that a client can reach is counted by reason."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable

import pytest
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import FetchRequest
from twisted.internet.task import Clock

from tests.metrics.scraping import ON, Scrape
from tests.support.raw import RawConnection
from tests.support.raw_admin import brokers, create_topic
from tests.support.raw_log import batch, fetch, produce, produce_request
from tests.support.records import numbered
from tests.support.server import HOST, Server
from tests.support.waiting import until
from txbroker.purgatory import Purgatory
from txbroker.transport.receive import ReceiveBuffers

Start = Callable[..., Server]


def refused(server: Server) -> dict[str, float]:
    """The reasons counted."""
    counts = Scrape(server).by("txbroker_refusals_total", "reason")
    assert len(counts) > 25, "all reasons exist from the start"
    return {reason: count for reason, count in counts.items() if count}


def ends(server: Server, data: bytes) -> None:
    with RawConnection(server.address) as connection:
        connection.send_bytes(data)
        assert connection.is_ended()


def test_invalid_requests(start_broker: Start) -> None:
    server = start_broker(ON | {"socket.request.max.bytes": "100000"})
    assert refused(server) == {}
    for frame in (b"\x7f\0\0\0\0\0\0\1\xff\xff", b"\0\0\0\x63\0\0\0\1\xff\xff", b"\0\3\0\5\0\0\0\1\xff\xff\x7f\xff\xff\xff"):
        ends(server, struct.pack(">i", len(frame)) + frame)
    for size in (-1, 3, 100_001, 100_001):
        ends(server, struct.pack(">i", size))
    assert refused(server) == {
        "unknown_api": 1, "unsupported_version": 1, "unparsable_request": 1, "request_too_small": 2, "request_too_large": 2,
    }


def test_too_large_records(start_broker: Start) -> None:
    server = start_broker(ON)
    create_topic(server, "t", configs={"max.message.bytes": "1000"})
    create_topic(server, "u", configs={"segment.bytes": "2000"})
    data = batch(numbered(1, size=5000))
    with RawConnection(server.address) as connection:
        assert produce(connection, "t", data).error_code == 10
        assert produce(connection, "u", data).error_code == 18
        assert produce(connection, "nowhere", data).error_code == 3
    assert refused(server) == {"record_too_large": 1, "batch_too_large": 1}
    scrape = Scrape(server)
    assert scrape.by("kafka_server_brokertopicmetrics_bytesrejected_total", "topic") == {"t": len(data), "u": len(data)}
    assert scrape.by("kafka_server_brokertopicmetrics_failedproducerequests_total", "topic") == {"t": 0, "u": 0}
    assert scrape.by("kafka_network_requestmetrics_errors_total", "error") == {
        "MESSAGE_TOO_LARGE": 1, "RECORD_LIST_TOO_LARGE": 1, "UNKNOWN_TOPIC_OR_PARTITION": 1,
    }


def test_errors_that_no_response_can_carry(start_broker: Start) -> None:
    server = start_broker(ON)
    create_topic(server, "t")
    with RawConnection(server.address) as connection:
        connection.send(produce_request("t", b"\0" * 100, acks=0), 8)
        assert connection.is_ended()
    assert refused(server) == {"failed_without_answer": 1}
    assert Scrape(server).by("kafka_server_brokertopicmetrics_failedproducerequests_total", "topic") == {"t": 1}


def test_a_handler_that_cannot_be_loaded_for_want_of_descriptors(start_broker: Start) -> None:
    server = start_broker(ON)
    with RawConnection(server.address) as connection:
        brokers(connection)  # it is accepted
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (0, hard))
        connection.send(ListGroupsRequest(), 0)
        assert connection.is_ended()
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert refused(server) == {"handler_not_loaded": 1}
    with RawConnection(server.address) as connection:
        assert connection.call(ListGroupsRequest(), 0).error_code == 0


def test_too_many_connections(start_broker: Start) -> None:
    server = start_broker(ON | {"max.connections.per.ip": "2"})
    with RawConnection(server.address), RawConnection(server.address), RawConnection(server.address) as third:
        assert third.is_ended()
        assert refused(server) == {"max_connections_per_ip": 1}
        scrape = Scrape(server)
        assert scrape("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT", networkProcessor="0") == 2
    until(lambda: Scrape(server)("kafka_server_socket_server_metrics_connection_close_total") == 2, "both have ended")
    assert Scrape(server)("kafka_server_socket_server_metrics_connection_creation_total") == 2


def test_delayed_accepts(start_broker: Start) -> None:
    server = start_broker(ON | {"max.connections": "1"})
    with RawConnection(server.address), socket.create_connection((HOST, server.port)):
        until(lambda: refused(server) == {"max_connections": 1}, "accepting waits")


def test_idle_connections(start_broker: Start) -> None:
    server = start_broker(ON | {"connections.max.idle.ms": "200"})
    with RawConnection(server.address) as connection:
        assert connection.is_ended()
    assert refused(server) == {"idle": 1}


def test_refused_fetch_sessions(start_broker: Start) -> None:
    server = start_broker(ON | {"max.incremental.fetch.session.cache.slots": "1"})
    create_topic(server, "t")
    topics = FetchRequest.FetchTopic
    part = topics.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    with RawConnection(server.address) as connection:
        for _ in range(2):
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_id=0, session_epoch=0, forgotten_topics_data=[],
                                   topics=[topics(topic="t", partitions=[part])])
            assert connection.call(request, 11).error_code == 0
    assert refused(server) == {"fetch_session_slots": 1}
    scrape = Scrape(server)
    assert scrape("kafka_server_fetchsessioncache_numincrementalfetchsessions") == 1
    assert scrape("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached") == 1


def test_fetches_of_missing_partitions_and_offsets(start_broker: Start) -> None:
    server = start_broker(ON)
    create_topic(server, "t")
    with RawConnection(server.address) as connection:
        data = batch(numbered(5))
        assert produce(connection, "t", data).error_code == 0
        assert fetch(connection, "t", 0).size == len(data)
        assert fetch(connection, "t", 5).size == 0
        assert fetch(connection, "t", 99).error_code == 1
    scrape = Scrape(server)
    topic = "kafka_server_brokertopicmetrics_"
    assert scrape.by(f"{topic}bytesout_total", "topic") == {"t": len(data)}
    assert scrape.by(f"{topic}totalfetchrequests_total", "topic") == {"t": 3}
    assert scrape.by(f"{topic}failedfetchrequests_total", "topic") == {"t": 0}
    errors = {dict(labels)["request"]: count for labels, count in scrape.samples["kafka_network_requestmetrics_errors_total"].items()}
    assert errors == {"Fetch": 1, "FetchConsumer": 1}
    assert scrape("kafka_network_requestmetrics_totaltimems_count", request="FetchConsumer") == 3


class Waits:
    """An operation that only ends by its timeout."""

    ended = False

    def try_complete(self) -> bool:
        return False

    def on_expired(self) -> None:
        self.ended = True


def test_a_full_purgatory_is_counted() -> None:
    purgatory = Purgatory(Clock(), "test", parked_max=1)
    assert purgatory.park(Waits(), ["a"], 1000) is not None
    late = Waits()
    assert purgatory.park(late, ["a"], 1000) is None and late.ended
    assert purgatory.park(Waits(), ["a"], 0) is None
    assert purgatory.refused == 1, "an operation without a timeout is not refused"


@pytest.mark.parametrize(("budget", "waits"), [(-1, 0), (100, 1)])
def test_waits_for_request_memory_are_counted(budget: int, waits: int) -> None:
    class Waiter:
        def granted(self) -> None: ...

    buffers = ReceiveBuffers(budget)
    for waiter in (Waiter(), Waiter(), Waiter()):
        buffers.reserve(100, waiter)
    assert buffers.waits == waits
