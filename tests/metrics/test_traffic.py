"""The metrics after real traffic match the client's numbers, to the last record and byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.metrics.scraping import ON, OPENMETRICS, Scrape
from tests.support import raw_admin, raw_log
from tests.support.raw import RawConnection
from tests.support.records import numbered
from tests.support.server import Server

TOPIC = "kafka_server_brokertopicmetrics_"


@pytest.fixture
def watched(start_broker: Callable[..., Server]) -> Server:
    return start_broker(ON)


def test_records_and_bytes_of_topics(watched: Server) -> None:
    raw_admin.create_topic(watched, "first", 2)
    raw_admin.create_topic(watched, "second")
    small, large = raw_log.batch(numbered(3)), raw_log.batch(numbered(40))
    with RawConnection(watched.address) as connection:
        for topic, data, partition in (("first", small, 0), ("first", large, 1), ("second", small, 0)):
            assert raw_log.produce(connection, topic, data, partition=partition).error_code == 0
    scrape = Scrape(watched)
    assert scrape.by(f"{TOPIC}messagesin_total", "topic") == {"first": 43, "second": 3}
    assert scrape.by(f"{TOPIC}bytesin_total", "topic") == {"first": len(small) + len(large), "second": len(small)}
    assert scrape.by(f"{TOPIC}totalproducerequests_total", "topic") == {"first": 2, "second": 1}
    assert scrape(f"{TOPIC}messagesin_total") == 46
    assert scrape("kafka_log_log_size", topic="first", partition="1") == len(large)
    assert scrape("kafka_log_log_logendoffset", topic="first", partition="1") == 40
    assert scrape("kafka_topic_partition_current_offset", topic="first", partition="0") == 3
    assert scrape("kafka_topic_partitions", topic="first") == 2
    assert scrape("kafka_server_replicamanager_leadercount") == 3
    assert scrape("kafka_controller_kafkacontroller_globalpartitioncount") == 3
    assert scrape("kafka_network_requestmetrics_requests_total", request="Produce", version="8") == 3
    assert Scrape(watched, OPENMETRICS).samples.keys() == scrape.samples.keys(), "both formats have the same values"
