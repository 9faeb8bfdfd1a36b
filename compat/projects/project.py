"""The projects, and which of their tests run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Project:
    """A project of the Python Package Index whose tests need Kafka, in a container that they start or at localhost:9092.

    `tests`: a file of the source archive, or a package if `installs_tests`. `requirements`: what the tests need besides the project.
    `chosen`: an expression of pytest's -k for the short run. `options`: of pytest, for all runs. `failures`: the tests that fail, each
    with the reason: they must fail.
    """

    name: str
    version: str
    tests: str
    requirements: Sequence[str]
    chosen: str
    installs_tests: bool = False
    options: Sequence[str] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


_CONFLUENT = "confluent-kafka==2.16.1"

PROJECTS = (
    Project(
        "kombu", "5.7.0", "t/integration/test_kafka.py",
        (_CONFLUENT, "pytest-rerunfailures==16.7"),
        chosen="BasicFunctionality and publish_consume", options=("-o", "python_classes=test_*"),
    ),
    Project(
        "adc-streaming", "2.7.1", "tests/test_kafka_integration.py",
        (_CONFLUENT, "docker==7.2.0"),
        chosen="round_trip or with_key or from_end",
    ),
    Project(
        "bluesky-kafka", "0.10.0", "bluesky_kafka.tests",
        (_CONFLUENT, "msgpack-numpy==0.4.8", "ophyd==1.11.2", "intake==2.0.9", "dictdiffer==0.10.0"),
        chosen="basic_producer_and_basic_consumer", installs_tests=True,
    ),
)  # fmt: skip
