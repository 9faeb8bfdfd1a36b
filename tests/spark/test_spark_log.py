"""The file for what Spark logs: it is removed with the job, unless Spark failed."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.console.failures import CommandFailed
from txbroker.spark.offset_ranges import WrongData
from txbroker.spark.spark_failures import cause_in, failure
from txbroker.spark.spark_log import spark_log


class OfSpark(Exception):
    """As an exception of PySpark."""

    __module__ = "pyspark.errors"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def fail(error: Exception, cause: Exception | None) -> None:
    with spark_log() as log:
        log.write(b"line\n")
        raise error from cause


def test_it_is_removed_at_the_end(logs: Path) -> None:
    with spark_log() as log:
        log.write(b"line\n")
        assert len(list(logs.iterdir())) == 1
    assert not list(logs.iterdir())


def test_it_does_not_grow_for_ever(logs: Path) -> None:
    code = "import sys; print('a' * 200, flush=True); print('written', file=sys.stderr, flush=True); input(); print('b')"
    with spark_log(bytes_max=100, check_s=0.01) as log:
        (path,) = logs.iterdir()
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.PIPE) as writer:
            assert writer.stderr is not None and writer.stderr.readline() == b"written\n"
            until(lambda: path.stat().st_size == 0, "the file is emptied")
            writer.communicate(b"\n", PATIENCE_S)
        assert path.read_text() == "b\n", "the other process goes on at its beginning"


@pytest.mark.parametrize(("error", "cause"), [
    (CommandFailed("no broker"), None),
    (CommandFailed("no broker"), OSError()),
    (WrongData("damaged"), OfSpark()),
    (KeyboardInterrupt(), None),
])  # fmt: skip
def test_it_is_removed_if_spark_did_not_fail(logs: Path, error: Exception, cause: Exception | None) -> None:
    with pytest.raises(type(error)) as raised:
        fail(error, cause)
    assert raised.value is error and not list(logs.iterdir())


def test_a_failure_of_spark_names_it(logs: Path) -> None:
    cause = OfSpark("no memory")
    with pytest.raises(CommandFailed) as raised:
        fail(failure(cause), cause)
    (path,) = logs.iterdir()
    assert str(raised.value) == f"Spark failed: no memory; correct that and run this again; Spark's log is {path}"
    assert path.read_text() == "line\n" and path.stat().st_mode & 0o77 == 0


def test_a_defect_names_it(logs: Path) -> None:
    with pytest.raises(KeyError) as raised:
        fail(KeyError("x"), None)
    (path,) = logs.iterdir()
    assert raised.value.__notes__ == [f"Spark's log is {path}"]


def test_the_cause_in_a_log() -> None:
    text = 'WARN Utils: x\nException in thread "main" org.apache.spark.SparkException: Master must start with spark;\n\tat x\n'
    assert cause_in(text) == "org.apache.spark.SparkException: Master must start with spark"
    assert cause_in("WARN Utils: x\n") is None


@pytest.mark.extended
@pytest.mark.process
def test_a_master_that_spark_does_not_know(spark_jars: Path, broker: Server, topic: str, logs: Path) -> None:
    table = logs / "tables" / "one"
    source = ("--bootstrap-server", broker.address, "--topic", topic)
    _, complaint = run("spark", "load", *source, "--table", str(table), "--master", "nonsense", "--jars", str(spark_jars), status=2)
    (path,) = logs.glob("txbroker-spark-*.log")
    assert re.fullmatch(rf"txbroker spark load: Spark did not start: .*SparkException: Master .*; correct --master or the environment; "
                        rf"Spark's log is {path}\n", complaint)  # fmt: skip
    assert "SparkSubmit" in path.read_text()
