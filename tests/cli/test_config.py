"""`txbroker config`: every value with its origin, and the same verdict as a start."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from txbroker.cli.main import main

FILE = """\
# comment
num.partitions=3
log.retention.hours=5
ssl.keystore.password=hunter2
zookeeper.connect=zk:2181
"""


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    assert main(["config", "--print", "--json", *argv]) == 0
    shown = json.loads(capsys.readouterr().out)
    return {row["name"]: row for row in shown["values"]}, shown["warnings"]


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A start that is refused has begun to log: to a standard error that is gone after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "server.properties"
    path.write_text(FILE + f"log.dirs={tmp_path}/data\n")
    return path


def test_every_value_has_its_origin(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "4")
    monkeypatch.setenv("KAFKA_MESSAGE_MAX_BYTES", "2000")
    flags = ["--config", file.name, "--env", "--override", "message.max.bytes=3000"]
    values, warnings = printed(capsys, *flags)
    assert (values["num.partitions"]["value"], values["num.partitions"]["origin"]) == ("4", "environment variable KAFKA_NUM_PARTITIONS")
    assert (values["message.max.bytes"]["value"], values["message.max.bytes"]["origin"]) == ("3000", "--override")
    assert values["log.retention.hours"]["origin"] == "server.properties:3"
    assert (values["log.retention.ms"]["value"], values["log.retention.ms"]["origin"]) == (
        str(5 * 3600 * 1000), "server.properties:3 (log.retention.hours)",
    )
    assert (values["log.segment.bytes"]["value"], values["log.segment.bytes"]["origin"]) == ("1073741824", "default")
    assert values["zookeeper.connect"]["effective"] is False
    assert "num.io.threads" not in values
    assert [warning for warning in warnings if "zookeeper.connect (server.properties:5)" in warning]
    assert "num.io.threads" in printed(capsys, *flags, "--all")[0]


def test_without_env_the_environment_counts_for_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "4")
    assert printed(capsys, "--config", file.name)[0]["num.partitions"]["value"] == "3"


def test_of_several_files_the_last_wins(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("more.properties").write_text("num.partitions=9\n")
    values, _ = printed(capsys, "--config", file.name, "--config", "more.properties")
    assert values["num.partitions"]["origin"] == "more.properties:1"
    assert values["log.retention.hours"]["origin"] == "server.properties:3"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_secrets_are_hidden(file: Path, form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text() + "my.plugin.password=hunter2\nlistener.name.a.sasl.jaas.config=hunter2\n")
    assert main(["config", "--print", "--all", "--config", file.name, *form]) == 0
    ended = capsys.readouterr()
    assert "hunter2" not in ended.out + ended.err
    assert ended.out.count("[hidden]") == 3


def test_as_text_a_key_is_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--print", "--config", file.name]) == 0
    ended = capsys.readouterr()
    lines = [line.split("  # ") for line in ended.out.splitlines()]
    assert {tuple(part.strip() for part in line) for line in lines} >= {
        ("num.partitions=3", "server.properties:2"), ("listeners=PLAINTEXT://:9092", "default"), ("broker.rack=", "default"),
    }
    assert all(len(line) == 2 for line in lines)
    assert "txbroker config: warning: ssl.keystore.password (server.properties:4), zookeeper.connect (server.properties:5)" in ended.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("num.partitions=three", "server.properties:1: num.partitions is 'three'; it must be a whole number"),
        ("listeners=TLS://:1", "server.properties:1: listeners has the listener TLS, which has no protocol in listener.security"),
        ("log.dirs=/a,/a", "server.properties:1: log.dirs names /a twice"),
    ],
)
@pytest.mark.parametrize("what", ["--print", "--check"])
def test_what_stops_a_start_is_said_in_its_words(
    file: Path, what: str, text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert main(["config", what, "--config", file.name]) == 1
    refused = capsys.readouterr().err.removeprefix("txbroker config: ")
    assert refused.startswith(sentence)
    assert main(["run", "--config", file.name]) == 1
    assert capsys.readouterr().err.removeprefix("txbroker: ") == refused


def test_a_check_prints_warnings_only(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--check", "--config", file.name]) == 0
    ended = capsys.readouterr()
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert main(["config", "--check", "--json", "--config", "nowhere"]) == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith("nowhere cannot be read")


@pytest.mark.parametrize("argv", [[], ["--print", "--check"], ["--check", "--all"]])
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", *argv]) == 2
