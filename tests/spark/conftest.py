"""One Spark session for all of these tests: its start takes as long as several of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import cache
from tests.support.java import SHORT_LIVED, ClassArchive, java
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local Spark with the Kafka connector. PySpark is in the cache, not in the virtual environment, and is put on the path here."""
    java()
    jars = cache.jars(cache.SPARK)
    pyspark = cache.pyspark()
    place = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    sys.path.append(str(pyspark))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("txbroker-tests")
    archive = ClassArchive("driver", cache.SPARK)
    for key, value in _settings(jars, place, (*SHORT_LIVED, *archive.options())).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE_S)
    archive.keep()
    shutil.rmtree(place, ignore_errors=True)


def _settings(jars: list[Path], place: Path, java_options: tuple[str, ...]) -> dict[str, str]:
    return {
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
        # Two seconds of polling for new data would be most of a short streaming test.
        "spark.sql.streaming.pollingDelay": "50ms",
    }
