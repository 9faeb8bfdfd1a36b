"""The cache of downloads for the tests: its paths, and whether they are complete."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
POMS = Path(__file__).resolve().parent / "jars"
KAFKA_OLD = "kafka-3.9.1"
KAFKA_NEW = "kafka-4.3.1"
KAFKA_CONNECT = "kafka-connect-4.3.1"  # has MirrorMaker 2
KAFKA_STREAMS = "kafka-streams-4.3.1"
SPARK = "spark-4.0.0"
SPARK_POM = CHECKOUT / "txbroker" / "spark" / "pom.xml"  # that of `txbroker spark setup`
JAR_SETS = (KAFKA_NEW, KAFKA_OLD, KAFKA_CONNECT, KAFKA_STREAMS, SPARK)

_MARK = ".complete"  # written last, with the digest of the pom that the folder was filled from


class Missing(Exception):
    """Something that the tests need is not installed; the message says how to install it."""


def directory() -> Path:
    """The cache: TXBROKER_TEST_CACHE, so that several clones can share one, or .cache in the checkout."""
    return Path(os.environ.get("TXBROKER_TEST_CACHE") or CHECKOUT / ".cache")


def pom(jar_set: str) -> Path:
    """The Maven file that names the jars of a set."""
    return SPARK_POM if jar_set == SPARK else POMS / jar_set / "pom.xml"


def jar_directory(jar_set: str) -> Path:
    """The folder of one set of jars, complete or not."""
    return directory() / "jars" / jar_set


def jars_are_complete(jar_set: str) -> bool:
    """Whether the set is complete, and was downloaded from the current pom."""
    mark = jar_directory(jar_set) / _MARK
    return mark.is_file() and mark.read_text() == _digest(jar_set)


def mark_complete(folder: Path, jar_set: str | None = None) -> None:
    """Mark `folder` as complete: it has every jar of the set, or PySpark."""
    (folder / _MARK).write_text(_digest(jar_set) if jar_set else "")


def jars(jar_set: str) -> list[Path]:
    """The jars of a set; Missing when they were not downloaded."""
    if not jars_are_complete(jar_set):
        raise Missing(f"The jars of {jar_set} are not in {directory()}: run `make prepare`, which needs Java 17 and Maven "
                      "(Debian: apt-get install default-jre-headless maven)")
    return sorted(jar_directory(jar_set).glob("*.jar"))


def pyspark_version() -> str:
    """The release of PySpark that the Spark jars need: the version of the connector in its pom."""
    text = pom(SPARK).read_text()
    return text.split("<artifactId>spark-sql-kafka", 1)[1].split("<version>", 1)[1].split("</version>", 1)[0]


def pyspark_directory() -> Path:
    """The folder that PySpark is installed into; its users put it on sys.path."""
    return directory() / f"pyspark-{pyspark_version()}"


def pyspark_is_complete() -> bool:
    """Whether PySpark is completely installed."""
    return (pyspark_directory() / _MARK).is_file()


def pyspark() -> Path:
    """The folder to put on sys.path; Missing when PySpark was not installed."""
    if not pyspark_is_complete():
        raise Missing(f"PySpark is not in {directory()}: run `make prepare`")
    return pyspark_directory()


def _digest(jar_set: str) -> str:
    return hashlib.sha256(pom(jar_set).read_bytes()).hexdigest()
