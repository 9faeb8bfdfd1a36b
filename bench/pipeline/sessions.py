"""Brokers and Spark sessions that end with the block."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support import cache
from tests.support.server import Server
from txbroker.spark import session
from txbroker.spark.spark_log import spark_log


@contextmanager
def spark_session() -> Iterator[Any]:
    """Spark on all cores of this machine, as the commands start it; Missing if PySpark or the jars are not there."""
    sys.path.append(str(cache.pyspark()))
    cache.jars(cache.SPARK)
    with spark_log() as log:
        spark = session.open_session("local[*]", cache.jar_directory(cache.SPARK), delta=True, log=log)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def started(server: Server) -> Iterator[Server]:
    """A broker while it runs."""
    server.start()
    try:
        yield server
    finally:
        server.close()
