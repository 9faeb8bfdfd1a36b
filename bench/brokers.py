"""The brokers that are measured, each in its own process with its default settings."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.process_tree import cpu_seconds
from bench.requests import BrokerClient
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaProcess
from tests.support.server import Server, free_port

TXBROKER = "txbroker"
KAFKA = "kafka"

# Kafka's defaults, in place of what tests override for speed. Deleted topics must not fill the page cache of the next load.
DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "300000",
    "log.initial.task.delay.ms": "30000",
    "log.cleaner.backoff.ms": "15000",
    "log.segment.delete.delay.ms": "0",
}

# The options of Kafka's start script that affect speed.
KAFKA_JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


class _Measured:
    """Ready at the first answer to ApiVersions, which is polled every few milliseconds."""

    port: int

    def _is_ready(self) -> bool:
        try:
            with BrokerClient(f"127.0.0.1:{self.port}", timeout_s=5) as client:
                client.versions()
        except OSError:
            return False
        return True


class MeasuredTxbroker(_Measured, BrokerProcess):
    """txbroker on a port that is chosen before the start."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] = DEFAULTS) -> None:
        super().__init__(directory, overrides)
        self.port = free_port()


class MeasuredKafka(_Measured, KafkaProcess):
    """Apache Kafka with the heap and garbage collector settings of its start script."""

    java_options = KAFKA_JAVA_OPTIONS
    archives_classes = False

    def __init__(self, directory: Path, overrides: Mapping[str, str] = DEFAULTS) -> None:
        super().__init__(directory, overrides)
        self.port = free_port()


def make(name: str, directory: Path) -> Server:
    """A broker by name, not started yet."""
    return MeasuredTxbroker(directory) if name == TXBROKER else MeasuredKafka(directory)


class OthersMeter:
    """CPU use of all other processes on this machine from now on. Measurements on a busy machine are worth little.

    `brokers`: their first processes; those that they start are theirs.
    """

    def __init__(self, brokers: Iterable[int]) -> None:
        self._brokers = list(brokers)
        self._since = time.perf_counter()
        self._others = self._others_s()

    def cores(self) -> float:
        """Cores used by processes other than the brokers, this program and the tools it has run."""
        return max(0.0, (self._others_s() - self._others) / (time.perf_counter() - self._since))

    def _others_s(self) -> float:
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, softirq, *_ = (int(text) for text in file.readline().split()[1:])
        busy = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        ours = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        return busy - ours - sum(map(cpu_seconds, self._brokers))
