"""The brokers that this process has started and not ended yet, for the report of a failing test."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txbroker.testing.broker_report import BrokerReport, Sections
    from txbroker.testing.kafka import Kafka

started: list[Kafka] = []
begun: list[BrokerReport] = []  # with the test that runs
of_ended: list[Sections] = []  # of brokers that have ended in this test because of an exception


def ends(kafka: Kafka) -> None:
    """A broker is about to end. If an exception ends it in a test of pytest, the report needs what only it knows."""
    if kafka in started:
        started.remove(kafka)
        if sys.exc_info()[0] is not None and "PYTEST_CURRENT_TEST" in os.environ:
            of_ended.append(report_of(kafka).sections(None))


def begin(kafkas: list[Kafka]) -> None:
    """A test begins: from now on the journals of these brokers are about it."""
    from txbroker.testing.broker_report import BrokerReport

    begun[:] = [BrokerReport(kafka) for kafka in kafkas]
    of_ended.clear()


def report_of(kafka: Kafka) -> BrokerReport:
    """What the report of the test has of this broker, which may have started within the test."""
    from txbroker.testing.broker_report import BrokerReport

    return next((each for each in begun if each.kafka is kafka), None) or BrokerReport(kafka, from_start=True)
