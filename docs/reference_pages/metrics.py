"""The metrics reference: what a broker serves on its metrics port. A broker is started on a temporary directory, used, and read."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from docs.reference_pages.markdown import code, escape, table

_HEAD = """\
# Metrics

This page is generated from the metrics of a running broker. `txbroker.metrics.port` opens the port that serves them; see
[Monitoring](../operations.md#monitoring).

"""
_JMX = ("kafka_server_", "kafka_network_", "kafka_log_", "kafka_controller_", "kafka_cluster_", "kafka_coordinator_")
_SECTIONS = (
    ("Kafka's metrics, under the names of the Prometheus JMX exporter", _JMX),
    ("Topics and consumer groups, under the names of kafka_exporter", ("kafka_",)),
    ("txbroker", ("txbroker_",)),
    ("The process", ("",)),
)
_START_S = 60.0


class Family(NamedTuple):
    """One metric as it is served."""

    name: str
    kind: str
    labels: tuple[str, ...]
    documentation: str


def metrics_page() -> str:
    """Every metric of a broker that has been used."""
    left = families()
    page = _HEAD
    for title, prefixes in _SECTIONS:
        here = [family for family in left if family.name.startswith(prefixes)]
        left = [family for family in left if family not in here]
        rows = ([code(family.name), escape(family.documentation), ", ".join(family.labels), family.kind] for family in here)
        page += f"## {title}\n\n{table(('metric', 'meaning', 'labels', 'type'), rows)}\n"
    return page


def families() -> list[Family]:
    """What a broker serves after a topic was written, read by a group, compacted and expired."""
    with tempfile.TemporaryDirectory() as place, _broker(Path(place)) as (address, url):
        _use(address)
        with urlopen(url) as answer:
            text = answer.read().decode()
    found = []
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        names = {label for sample in family.samples for label in sample.labels}
        found.append(Family(name, family.type, tuple(sorted(names)), family.documentation))
    return sorted(found)


@contextmanager
def _broker(place: Path) -> Iterator[tuple[str, str]]:
    """A broker while the block runs: its address, and the URL of its metrics."""
    ready = place / "ready"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": place / "data",
        "txbroker.metrics.port": 0,
        "group.initial.rebalance.delay.ms": 0,
        "log.retention.check.interval.ms": 100,
    }
    command = [sys.executable, "-m", "txbroker", "run", "--ready-file", str(ready), "--log-level", "warning", "--log-format", "json"]
    for name, value in settings.items():
        command += ["--override", f"{name}={value}"]
    broker = subprocess.Popen(command)
    try:
        end_s = time.monotonic() + _START_S
        while not ready.exists():
            if broker.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError("the broker whose metrics are to be documented did not start")
            time.sleep(0.05)
        address, url = ready.read_text().split()
        yield address, url
    finally:
        broker.terminate()
        broker.wait()


def _use(address: str) -> None:
    server = {"bootstrap_servers": address}
    admin, producer = KafkaAdminClient(**server), KafkaProducer(**server)
    admin.create_topics([NewTopic("documented", 1, 1, topic_configs={"cleanup.policy": "compact,delete"})])
    for number in range(100):
        producer.send("documented", key=b"key", value=b"%d" % number)
    producer.flush()
    consumer = KafkaConsumer("documented", **server, group_id="readers", auto_offset_reset="earliest")
    next(consumer)
    consumer.commit()
    for operation in ({"txbroker.compact": "roll"}, {"txbroker.expire": "now"}):
        admin.alter_configs([ConfigResource("TOPIC", "documented", operation)], raise_on_unknown=False)
    for client in (consumer, producer, admin):
        client.close()
