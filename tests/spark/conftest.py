"""One Spark session for all of these tests: its start takes as long as several of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.loads import Load
from tests.spark.producing import PARTITIONS, produce
from tests.spark.unstopped import Unstopped
from tests.support import cache
from tests.support.java import SHORT_LIVED, ClassArchive, java
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S
from txbroker.spark import session
from txbroker.spark.load import LoadOptions, LoadReport, load
from txbroker.spark.topic_source import TopicSource


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The folder of the jars, with PySpark on the path: it is in the cache and in no virtual environment."""
    java()
    cache.jars(cache.SPARK)
    sys.path.append(str(cache.pyspark()))
    return cache.jar_directory(cache.SPARK)


@pytest.fixture(scope="session")
def spark(spark_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local Spark with the Kafka connector and Delta, set up as the jobs do."""
    place = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("txbroker-tests")
    archive = ClassArchive("driver", cache.SPARK)
    settings = {**session.settings(spark_jars, delta=True, local=True), **_settings(place, (*SHORT_LIVED, *archive.options()))}
    for key, value in settings.items():
        builder = builder.config(key, value)
    opened = builder.getOrCreate()
    opened.sparkContext.setLogLevel("ERROR")
    yield opened
    gateway: Any = opened.sparkContext._gateway
    opened.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE_S)
    archive.keep()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def commands_share_the_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`txbroker spark` commands that run in this process use the session of all tests."""
    monkeypatch.setattr("txbroker.spark.session.open_session", lambda *arguments, **options: Unstopped(spark))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The folder of a table, which does not exist yet."""
    return tmp_path / "table"


@pytest.fixture
def topic(broker: Server, name: str) -> str:
    """A topic with ten records in each of `PARTITIONS` partitions."""
    create_topic(broker, name, PARTITIONS)
    produce(broker, name, 10 * PARTITIONS)
    return name


@pytest.fixture
def loading(spark: Any, broker: Server, topic: str, table: Path) -> Load:
    """Load the topic into the table; arguments are those of `LoadOptions` and `load`."""
    def loading(**options: Any) -> LoadReport:
        on_step = options.pop("on_step", lambda step: None)
        source = TopicSource(broker.address, options.pop("topics", [topic]), options.pop("include", None))
        return load(spark, LoadOptions(source, **{"table": str(table), **options}), on_step=on_step)

    return loading


def _settings(place: Path, java_options: tuple[str, ...]) -> dict[str, str]:
    return {
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.driver.memory": "768m",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        # Compiling each query takes longer than running it on a few rows; test_standalone.py and tests that start commands compile them.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
        # Two seconds of polling for new data would be most of a short streaming test.
        "spark.sql.streaming.pollingDelay": "50ms",
    }
