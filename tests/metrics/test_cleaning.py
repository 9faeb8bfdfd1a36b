"""The metrics of the log cleaner compared with its passes."""

from __future__ import annotations

import struct
from collections.abc import Callable

from kafka import KafkaProducer
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from tests.metrics.scraping import ON, Scrape
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.server import Server

KAFKAS = [
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "kafka_log_logcleaner_max_clean_time_secs",
    "kafka_log_logcleaner_max_buffer_utilization_percent",
    "kafka_log_logcleaner_max_compaction_delay_secs",
    "kafka_log_logcleaner_deadthreadcount",
    "kafka_log_logcleanermanager_max_dirty_percent",
    "kafka_log_logcleanermanager_time_since_last_run_ms",
]


def test_a_pass_is_counted(start_broker: Callable[..., Server], name: str) -> None:
    broker = start_broker({**ON, "log.cleaner.backoff.ms": "3600000", "txbroker.metrics.labels.max": "100"})
    configs = {"cleanup.policy": "compact", "compaction.strategy": "header", "compaction.strategy.header": "version"}
    create_topic(broker, name, 1, configs)
    create_topic(broker, f"{name}-plain", 1, {})
    place = {"topic": name, "partition": "0"}
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        for number in range(10):
            value = b"\0\1" if number in (3, 4) else struct.pack(">q", number)  # two of them are obsolete
            producer.send(name, b"x", key=b"k", headers=[("version", value)])
        producer.flush()
    before = Scrape(broker)
    assert before("txbroker_cleaner_dirty_ratio", **place) == 0, "all records are in the active segment"
    assert "txbroker_cleaner_passes_total" not in before.samples
    with RawConnection(broker.address) as connection:
        request = IncrementalAlterConfigsRequest(resources=[(2, name, [("txbroker.compact", 0, "roll")])], validate_only=False)
        (answer,) = connection.call(request, 1).responses
        assert answer.error_code == 0, answer
    after = Scrape(broker)
    for metric in KAFKAS:
        assert after(metric) >= 0
    assert 0 < after("kafka_log_logcleaner_cleaner_recopy_percent") < 100
    assert after("kafka_log_logcleaner_deadthreadcount") == 0
    assert after("txbroker_cleaner_passes_total", **place) == 1
    # The latest of 0 to 8 and the last record of the log, 9, are kept.
    assert after("txbroker_cleaner_records_removed_total", **place) == 8
    assert after("txbroker_cleaner_bytes_freed_total", **place) > 0
    assert after("txbroker_cleaner_invalid_headers_total", **place) == 2
    assert after("txbroker_cleaner_missed_keys_total", **place) == 0
    assert after("txbroker_cleaner_passes_running") == 0
    (directory,) = after.by("kafka_log_logcleanermanager_uncleanable_partitions_count", "logDirectory")
    assert directory == str(broker.data)
    assert not any(dict(labels)["topic"] == f"{name}-plain" for labels in after.samples["txbroker_cleaner_dirty_ratio"])
