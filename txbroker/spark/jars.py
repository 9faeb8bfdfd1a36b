"""The jars that Spark needs besides PySpark's own: which ones, whether they fit each other, and how to get them with Maven.

`pom.xml` beside this module names them. They fit one release of PySpark only: Delta and the Kafka connector use Spark's internal classes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from txbroker.console.failures import CommandFailed
from txbroker.console.java_programs import cache_folder, fetch_jars, java_program

POM = Path(__file__).with_name("pom.xml")
CONNECTOR, DELTA = "spark-sql-kafka-0-10", "delta-spark"
JAVA_MIN = 17
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"
_JAR = re.compile(r"(?P<artifact>.+?)(?:_(?P<scala>\d+\.\d+))?-(?P<version>\d+\.\d+\.\d+)\.jar")


class Jar(NamedTuple):
    """A jar by its Maven coordinates. `scala` is the Scala version that it was compiled for, None for Java."""

    artifact: str
    scala: str | None
    version: str

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.artifact}{f'_{self.scala}' if self.scala else ''}-{self.version}.jar"

    @property
    def is_delta(self) -> bool:
        """Whether only Delta tables need it."""
        return self.artifact.startswith("delta-")


def required() -> list[Jar]:
    """The jars that `pom.xml` names."""
    dependencies = ElementTree.parse(POM).getroot().iter(f"{_NAMESPACE}dependency")
    names = [f"{each.findtext(_NAMESPACE + 'artifactId')}-{each.findtext(_NAMESPACE + 'version')}.jar" for each in dependencies]
    return [jar for name in names if (jar := parse(name)) is not None]


def parse(name: str) -> Jar | None:
    """The coordinates in a file's name; None if it has none."""
    match = _JAR.fullmatch(name)
    return None if match is None else Jar(match["artifact"], match["scala"], match["version"])


def spark_version() -> str:
    """The release of PySpark that the jars are for."""
    return next(jar.version for jar in required() if jar.artifact == CONNECTOR)


def default_folder() -> Path:
    """Where `txbroker spark setup` puts the jars, and where the jobs look for them."""
    return cache_folder(f"spark-{spark_version()}-jars")


def found(folder: Path) -> list[Path]:
    """The jars in a folder, in order."""
    return sorted(folder.glob("*.jar"))


def problems(folder: Path, *, delta: bool = True) -> list[str]:
    """What is missing or does not fit, one sentence each; empty if the jobs can run."""
    return [*_python_problems(), *_java_problems(), *jar_problems(folder, delta=delta)]


def jar_problems(folder: Path, *, delta: bool) -> list[str]:
    """Jars that are missing, and jars of another version beside them, which Spark might load instead."""
    there = [jar for path in found(folder) if (jar := parse(path.name)) is not None]
    missing = [jar.name for jar in required() if jar not in there and (delta or not jar.is_delta)]
    exact = {jar.artifact: jar for jar in required()}
    others = [jar.name for jar in there if jar.artifact in exact and jar != exact[jar.artifact]]
    setup = f"run `txbroker spark setup{'' if folder == default_folder() else f' --jars {folder}'}`"
    problems = []
    if missing:
        problems.append(f"jars are missing in {folder}: {', '.join(missing)}; {setup}")
    if others:
        problems.append(f"jars of another version are in {folder}: {', '.join(others)}; remove them, or {setup}")
    return problems


def has_delta(folder: Path) -> bool:
    """Whether the jars of Delta are in a folder."""
    return (folder / next(jar for jar in required() if jar.artifact == DELTA).name).is_file()


def check(folder: Path, *, delta: bool) -> None:
    """CommandFailed with everything that is missing."""
    wrong = problems(folder, delta=delta)
    if wrong:
        raise CommandFailed(". ".join(wrong))


def fetch(folder: Path) -> None:
    """Copy the jars into `folder` with Maven, replacing what does not fit; CommandFailed when Maven cannot."""
    fetch_jars(POM, folder, [jar.name for jar in required()])
    wanted = {jar.name for jar in required()}
    artifacts = {jar.artifact for jar in required()}
    for path in found(folder):
        jar = parse(path.name)
        if jar is not None and jar.artifact in artifacts and path.name not in wanted:
            path.unlink()  # of another release


def _python_problems() -> Iterable[str]:
    version = spark_version()
    if importlib.util.find_spec("pyspark") is None:
        yield f"PySpark is not installed: {sys.executable} -m pip install 'pyspark=={version}'"
        return
    import pyspark

    if pyspark.__version__ != version:
        yield (f"PySpark is {pyspark.__version__}, and the jars are for {version}: "
               f"{sys.executable} -m pip install 'pyspark=={version}'")
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    scala = {parsed.version.rpartition(".")[0] for path in found(home / "jars")
             if (parsed := parse(path.name)) is not None and parsed.artifact == "scala-library"}
    wanted = {jar.scala for jar in required() if jar.scala}
    if scala != wanted:
        versions = ", ".join(sorted(scala)) or "no scala-library"
        yield f"Spark in {home} has {versions}, and the jars are for Scala {', '.join(sorted(map(str, wanted)))}; unset SPARK_HOME"


def _java_problems() -> Iterable[str]:
    try:
        ended = subprocess.run([java_program(), "-version"], capture_output=True, text=True, timeout=60, check=False)
        match = re.search(r'version "(\d+)', ended.stderr + ended.stdout)
    except (OSError, subprocess.TimeoutExpired):
        match = None
    if match is None:
        yield f"Java {JAVA_MIN} is required and no Java runs (Debian: apt-get install default-jre-headless; or correct JAVA_HOME)"
    elif int(match[1]) < JAVA_MIN:
        yield f"Java is {match[1]}, and Spark needs {JAVA_MIN} or newer; install one, or set JAVA_HOME to it"
