"""A Spark session for the jobs, local or on a cluster, and the check of a session that someone else has opened."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark import jars
from txbroker.spark.spark_failures import cause_in, is_of_spark, reason

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # in the environment of a program that spark-submit has started
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
SHUFFLE_ROWS = 250_000  # of a task
# Tasks with which Delta reads its log before and after each commit. Its default of 50 takes a local master two seconds.
SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
NOTHING: Mapping[str, str] = {}
_LISTS = ("spark.jars", "spark.sql.extensions")
LOG_END_BYTES = 64 * 1024  # of Spark's log, in which the cause of a failed start is searched
_CLASSES = {False: "org.apache.spark.sql.kafka010.KafkaSourceProvider", True: "org.apache.spark.sql.delta.DeltaLog"}


def settings(folder: Path | None, *, delta: bool, local: bool, given: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """Spark's properties for the jobs, with the jars in a folder. UTC, so that timestamps do not depend on the machine.

    `given`: others, which replace these; jars, and extensions of SQL, are added to these.
    """
    found = {"spark.sql.session.timeZone": "UTC", "spark.ui.showConsoleProgress": "false"}
    if folder is not None:
        found["spark.jars"] = ",".join(map(str, jars.found(folder)))
    if delta:
        found |= {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
        if local:
            found[SNAPSHOT_PARTITIONS] = "4"
    if local:
        found |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    return found | {key: f"{found[key]},{value}" if key in _LISTS and key in found else value for key, value in given.items()}


def check_properties(given: Mapping[str, str]) -> None:
    """BadUsage for what is no property of Spark, and for what has a flag of its own."""
    for key in given:
        if not key.startswith("spark."):
            raise BadUsage(f"--conf {key}: the names of Spark's properties begin with spark.; correct the name")
        if key == "spark.master":
            raise BadUsage("--conf spark.master: specify --master instead")


def open_session(master: str, folder: Path, *, delta: bool, log: BinaryIO, given: Mapping[str, str] = NOTHING) -> Any:
    """A session on `master` with the jars in a folder. CommandFailed if anything is missing or does not fit, or Spark does not start.

    `given`: as in `settings`. `log`: a file for what the JVM prints. Under spark-submit the JVM is there already, and prints where it did;
    the master and the jars are those of its flags. The jobs check the session that they get (`check_session`).
    """
    submitted = SUBMITTED in os.environ
    if not submitted:
        jars.check(folder, delta=delta)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the first python3 on PATH
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName("txbroker")
    if not submitted:
        conf.setMaster(master)
    local = not submitted and master.startswith("local")
    conf.setAll(list(settings(None if submitted else folder, delta=delta, local=local, given=given).items()))
    try:
        SparkContext(conf=conf, gateway=launch_gateway(conf, {"stdout": log, "stderr": log}))
        session = SparkSession.builder.getOrCreate()
    except Exception as error:
        if not is_of_spark(error):
            raise
        why = cause_in(_end_of(log)) or reason(error)
        raise CommandFailed(f"Spark did not start: {why}; correct --master or the environment") from error
    session.sparkContext.setLogLevel("WARN")
    _silence_contexts()
    return session


def _end_of(log: BinaryIO) -> str:
    size = os.fstat(log.fileno()).st_size
    return os.pread(log.fileno(), LOG_END_BYTES, max(0, size - LOG_END_BYTES)).decode(errors="replace")


def _silence_contexts() -> None:
    """PySpark logs a page of JSON for an error of SQL, beside the exception, which the jobs report in one line."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def configured(spark: Any, properties: Mapping[str, str]) -> Iterator[None]:
    """Set properties of a session while the block runs."""
    before = {key: spark.conf.get(key, None) for key in properties}
    for key, value in properties.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def check_session(spark: Any, *, delta: bool) -> None:
    """CommandFailed unless the session has the classes of the Kafka source, and Delta and its settings if `delta`."""
    if spark.version != jars.spark_version():
        raise CommandFailed(f"Spark is {spark.version}, and this version of txbroker is for {jars.spark_version()}; use that release")
    for is_delta, name in _CLASSES.items():
        if (delta or not is_delta) and not _has_class(spark, name):
            names = ", ".join(jar.name for jar in jars.required() if delta or not jar.is_delta)
            raise CommandFailed(f"the Spark session has no class {name}; start it with --jars and these files: {names}")
    if delta and EXTENSION not in spark.conf.get("spark.sql.extensions", ""):
        raise CommandFailed(f"the Spark session is not set up for Delta: set spark.sql.extensions={EXTENSION} and "
                            f"spark.sql.catalog.spark_catalog={CATALOG}")


def has_delta(spark: Any) -> bool:
    """Whether the session has Delta's classes."""
    return _has_class(spark, _CLASSES[True])


def _has_class(spark: Any, name: str) -> bool:
    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception as error:
        if "ClassNotFound" not in str(error):
            raise
        return False
    return True


@contextmanager
def shuffles_for(spark: Any, rows: int) -> Iterator[None]:
    """Within the block a shuffle has as many tasks as so many rows need."""
    configured = spark.conf.get(SHUFFLE_PARTITIONS)
    configure_shuffles(spark, rows)
    try:
        yield
    finally:
        spark.conf.set(SHUFFLE_PARTITIONS, configured)


def configure_shuffles(spark: Any, rows: int) -> None:
    """Set the number of a shuffle's tasks for so many rows: 200, the default, take longer than a small job itself.

    At most as many as the session is set to, and enough for all cores.
    """
    wanted = max(spark.sparkContext.defaultParallelism, -(-rows // SHUFFLE_ROWS))
    spark.conf.set(SHUFFLE_PARTITIONS, str(min(int(spark.conf.get(SHUFFLE_PARTITIONS)), wanted)))
