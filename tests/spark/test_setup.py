"""`txbroker spark setup`: jars, and the versions of what the jobs use."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import run
from txbroker.spark import jars, session

NAMES = [jar.name for jar in jars.required()]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if PySpark and Java were there."""
    monkeypatch.setattr(jars, "_python_problems", list)
    monkeypatch.setattr(jars, "_java_problems", list)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files that have the names of the jars."""
    for name in NAMES:
        (tmp_path / name).touch()
    return tmp_path


def test_the_jars_are_for_one_release_of_spark_and_of_scala() -> None:
    assert len(NAMES) == 7
    assert {jar.version for jar in jars.required() if jar.artifact.startswith("spark-")} == {jars.spark_version()}
    assert len({jar.scala for jar in jars.required() if jar.scala}) == 1
    assert [jar.artifact for jar in jars.required() if jar.is_delta] == ["delta-spark", "delta-storage"]


def test_properties_of_the_user(folder: Path) -> None:
    given = {"spark.jars": "more.jar", "spark.sql.extensions": "x.Y", "spark.ui.enabled": "true", "spark.executor.memory": "4g"}
    found = session.settings(folder, delta=True, local=True, given=given)
    assert found["spark.jars"].endswith(".jar,more.jar") and found["spark.sql.extensions"] == f"{session.EXTENSION},x.Y"
    assert (found["spark.ui.enabled"], found["spark.executor.memory"]) == ("true", "4g")
    assert session.settings(None, delta=False, local=False, given=given)["spark.jars"] == "more.jar"


def test_a_complete_folder(installed: None, folder: Path) -> None:
    output, _ = run("spark", "setup", "--check", "--jars", str(folder))
    assert all(name in output for name in NAMES)


def test_a_missing_jar(installed: None, folder: Path) -> None:
    (folder / "delta-storage-4.0.0.jar").unlink()
    assert jars.problems(folder, delta=False) == []
    _, complaint = run("spark", "setup", "--check", "--jars", str(folder), status=2)
    assert f"jars are missing in {folder}: delta-storage-4.0.0.jar; run `txbroker spark setup --jars {folder}`" in complaint


def test_a_jar_of_another_version(installed: None, folder: Path) -> None:
    (folder / "kafka-clients-3.4.1.jar").touch()
    (folder / "spark-sql-kafka-0-10_2.12-4.0.0.jar").touch()
    _, complaint = run("spark", "setup", "--check", "--jars", str(folder), status=2)
    assert "kafka-clients-3.4.1.jar, spark-sql-kafka-0-10_2.12-4.0.0.jar; remove them" in complaint


def test_maven_fetches_what_is_missing_and_removes_other_versions(
    installed: None, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Maven is a script here, which copies as `dependency:copy-dependencies` does."""
    programs, there = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("maven")
    for name in NAMES:
        shutil.move(folder / name, there)
    (folder / "kafka-clients-3.4.1.jar").touch()
    copy = f'case $word in -DoutputDirectory=*) cp {there}/*.jar "${{word#*=}}";; esac'
    (programs / "mvn").write_text(f"#!/bin/sh\nfor word; do {copy}; done\n")
    (programs / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    run("spark", "setup", "--jars", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)

    (programs / "mvn").write_text("#!/bin/sh\necho no such artifact\nexit 1\n")
    (folder / NAMES[0]).unlink()
    _, complaint = run("spark", "setup", "--jars", str(folder), status=2)
    assert "Maven failed with status 1: no such artifact" in complaint


def test_what_is_not_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None if name == "pyspark" else find(name, package))
    monkeypatch.setenv("JAVA_HOME", str(folder))
    first, second = jars.problems(folder)
    assert "PySpark is not installed" in first and f"pyspark=={jars.spark_version()}" in first
    assert "no Java runs" in second


def test_another_release_of_pyspark_and_of_java(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("installed")
    (place / "pyspark" / "jars").mkdir(parents=True)
    (place / "pyspark" / "__init__.py").write_text("__version__ = '3.5.9'\n")
    (place / "pyspark" / "jars" / "scala-library-2.12.18.jar").touch()
    (place / "bin").mkdir()
    (place / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    (place / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(place))
    monkeypatch.setenv("SPARK_HOME", str(place / "pyspark"))
    monkeypatch.syspath_prepend(str(place))
    with pytest.MonkeyPatch.context() as patch:
        import sys

        for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
            patch.delitem(sys.modules, name)
        pyspark, scala, java = jars.problems(folder)
        sys.modules.pop("pyspark", None)
    assert "PySpark is 3.5.9, and the jars are for 4.0.0" in pyspark
    assert "has 2.12, and the jars are for Scala 2.13" in scala
    assert "Java is 11" in java
