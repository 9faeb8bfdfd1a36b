"""retention.precise for clients: reads and waiting fetches below the new start, and the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka import KafkaConsumer
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from tests.metrics.scraping import ON, Scrape
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, delete_records
from tests.support.raw_log import EARLIEST, GZIP, batch, fetch, fetch_request, fetched, list_offset, produce
from tests.support.records import Sample
from tests.support.server import Server
from tests.support.waiting import until

OFFSET_OUT_OF_RANGE = 1
HOUR_MS = 3_600_000
OFTEN = {"log.retention.check.interval.ms": "50"}
TOPIC = 2

Start = Callable[..., Server]


def aged(*ages_ms: int) -> list[Sample]:
    now_ms = int(time.time() * 1000)
    return [Sample(b"k", b"%d" % index, (), now_ms - age) for index, age in enumerate(ages_ms)]


def retain(connection: RawConnection, topic: str, retention_ms: int) -> None:
    resources = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resources.AlterableConfig(name="retention.ms", config_operation=0, value=str(retention_ms))
    resource = resources(resource_type=TOPIC, resource_name=topic, configs=[config])
    answer = connection.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 0)
    assert [response.error_code for response in answer.responses] == [0]


def test_records_expire_one_by_one_and_clients_follow(start_broker: Start) -> None:
    server = start_broker(OFTEN | ON)
    for topic, precise in (("exact", "true"), ("rough", "false")):
        create_topic(server, topic, configs={"retention.ms": str(10 * HOUR_MS), "retention.precise": precise})
    with RawConnection(server.address) as connection, RawConnection(server.address) as waiting:
        for topic in ("exact", "rough"):
            produce(connection, topic, batch(aged(8 * HOUR_MS, 7 * HOUR_MS, 6 * HOUR_MS, HOUR_MS, HOUR_MS, 5 * HOUR_MS), codec=GZIP))
        with KafkaConsumer("exact", bootstrap_servers=server.address, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
            until(lambda: [record for records in consumer.poll(50).values() for record in records], "the first records")
            # It waits below the future log start offset for more bytes than there are.
            parked = fetch_request("exact", 1, bytes_min=1 << 20, wait_ms=60_000)
            waiting.send(parked, 11)
            assert fetch(connection, "exact", 0).log_start_offset == 0
            retain(connection, "exact", 4 * HOUR_MS)
            retain(connection, "rough", 4 * HOUR_MS)
            assert fetched(waiting.receive(parked)).error_code == OFFSET_OUT_OF_RANGE
            found = fetch(connection, "exact", 3)
            assert (found.error_code, found.log_start_offset) == (0, 3)
            assert [record.value for record in found.records if record.offset >= 3] == [b"3", b"4", b"5"]
            assert fetch(connection, "exact", 2).error_code == OFFSET_OUT_OF_RANGE
            assert list_offset(connection, "exact", EARLIEST).offset == 3
            assert list_offset(connection, "rough", EARLIEST).offset == 0
            produce(connection, "exact", batch(aged(0)))
            got = until(lambda: [record.offset for records in consumer.poll(50).values() for record in records], "the last record")
            assert got == [6]
        # DeleteRecords moves the start too, and retention continues from there.
        delete_records(server, "exact", 4)
        assert fetch(connection, "exact", 4).log_start_offset == 4
        retain(connection, "exact", 1)
        until(lambda: list_offset(connection, "exact", EARLIEST).offset == 7, "all has expired")
        until(lambda: Scrape(server).by("txbroker_retention_lag_ms", "topic").get("rough", 0) > 3 * HOUR_MS, "the lag of Kafka's rule")
    scrape = Scrape(server)
    assert scrape("txbroker_retention_lag_ms", topic="exact", partition="0") == 0
    assert scrape("txbroker_retention_lag_max_ms") >= scrape("txbroker_retention_lag_ms", topic="rough", partition="0")
    assert scrape("txbroker_retention_pass_seconds") >= 0


def test_a_checkpointed_log_start_offset_survives_a_kill(start_broker: Start) -> None:
    server = start_broker(OFTEN | {"log.flush.start.offset.checkpoint.interval.ms": "50"})
    create_topic(server, "t", configs={"retention.ms": str(4 * HOUR_MS), "retention.precise": "true"})
    with RawConnection(server.address) as connection:
        produce(connection, "t", batch(aged(8 * HOUR_MS, 7 * HOUR_MS, HOUR_MS, 0)))
        until(lambda: list_offset(connection, "t", EARLIEST).offset == 2, "the records have expired")
    checkpoint = server.data / "log-start-offset-checkpoint"
    until(lambda: checkpoint.exists() and "t 0 2" in checkpoint.read_text(), "the checkpoint")
    server.kill()
    server.overrides["log.retention.check.interval.ms"] = "3600000"
    server.start()
    with RawConnection(server.address) as connection:
        assert list_offset(connection, "t", EARLIEST).offset == 2
        assert [record.offset for record in fetch(connection, "t", 2).records if record.offset >= 2] == [2, 3]
