"""The log of the process: levels, Kafka's layout as text, JSON."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from tests.support.running import RUN, TWISTD, Running
from txbroker.log_output import TEXT_LAYOUT, JsonFormatter, TextFormatter, parse_levels
from txbroker.names import TopicPartition
from txbroker.tap import _ToTwisted


def formatted(message: str, *args: object, exc_info: Any = None, **extra: object) -> dict[str, Any]:
    record = logging.LogRecord("txbroker.log", logging.WARNING, "x.py", 1, message, args, exc_info)
    vars(record).update(extra)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_one_object_per_line() -> None:
    line = formatted("%d bytes\nare „cut“", 7)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {"level": "WARNING", "logger": "txbroker.log", "message": "7 bytes\nare „cut“"}


@pytest.mark.parametrize("name", ["x\n[2026-11-27 00:00:00,000] INFO forged", "x\r[2026-11-27", "\x1b[2J\x9b2J", "x\u2028[2026", "\x85["])
def test_a_name_makes_no_line_of_its_own(name: str) -> None:
    record = logging.LogRecord("txbroker.log", logging.WARNING, "x.py", 1, "denied: %s", (name,), None)
    lines = TextFormatter(TEXT_LAYOUT).format(record).split("\n")
    assert re.fullmatch(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARNING denied: .*", lines[0])
    assert all(line.startswith("\t") and line[1:].isprintable() for line in lines[1:])
    assert lines[0].isprintable()


@pytest.mark.parametrize("name", ["x\u2028y", "x\x85y", "x\x9b2J", "x\x7f", "\U000e0001", "„é"])
def test_an_object_is_one_line_for_all_readers(name: str) -> None:
    record = logging.LogRecord("txbroker.log", logging.WARNING, "x.py", 1, "denied: %s", (name,), None)
    line = JsonFormatter().format(record)
    assert line.isprintable() and json.loads(line)["message"] == f"denied: {name}"
    assert ("„é" in line) == (name == "„é")


def test_twistds_log_has_no_control_characters() -> None:
    seen: list[dict[str, Any]] = []
    globalLogPublisher.addObserver(seen.append)
    try:
        record = logging.LogRecord("txbroker.log", logging.WARNING, "x.py", 1, "denied: %s", ("x\x1b[2J\ny\r",), None)
        _ToTwisted().emit(record)
    finally:
        globalLogPublisher.removeObserver(seen.append)
    assert [event["text"] for event in seen] == ["denied: x\\x1b[2J\ny\\r"]


def test_a_traceback_is_readable() -> None:
    try:
        raise ValueError("bad\n[2026-11-27 00:00:00,000] INFO forged")
    except ValueError:
        record = logging.LogRecord("txbroker.log", logging.ERROR, "x.py", 1, "it failed", (), sys.exc_info())
    first, second, *_, last = TextFormatter(TEXT_LAYOUT).format(record).split("\n")
    assert first.endswith(" ERROR it failed (txbroker.log)") and second == "\tTraceback (most recent call last):"
    assert last == "\t[2026-11-27 00:00:00,000] INFO forged"


def test_topic_and_partition_are_fields() -> None:
    line = formatted("%s: %d bytes are cut", TopicPartition("orders", 3), 7)
    assert (line["topic"], line["partition"], line["message"]) == ("orders", 3, "orders-3: 7 bytes are cut")


def test_extra_values_are_fields() -> None:
    line = formatted("x", group="g", path=Path("/a"), level="not this one")
    assert (line["group"], line["path"], line["level"]) == ("g", "/a", "WARNING")


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        line = formatted("it failed", exc_info=sys.exc_info())
    assert line["exception"].endswith("ValueError: bad")
    assert line["exception"].startswith("Traceback (most recent call last)")


@pytest.mark.parametrize(
    ("texts", "levels"),
    [
        ([], {"": "info"}),
        (["DEBUG"], {"": "debug"}),
        (["error", "warn"], {"": "warning"}),
        (["txbroker.groups=DEBUG"], {"": "info", "txbroker.groups": "debug"}),
        (["warning", "a.b=trace", "c = fatal"], {"": "warning", "a.b": "debug", "c": "critical"}),
    ],
)
def test_levels(texts: list[str], levels: dict[str, str]) -> None:
    assert parse_levels(texts) == levels


@pytest.mark.parametrize("text", ["", "loud", "=info", "a=", "a=loud", " =debug"])
def test_invalid_levels(text: str) -> None:
    with pytest.raises(ValueError, match="must be LEVEL or LOGGER=LEVEL"):
        parse_levels([text])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(host: tuple[str, ...], *arguments: str) -> Running:
        started.append(Running(host, tmp_path, *arguments))
        started[-1].wait_ready()
        return started[-1]

    yield begin
    for service in started:
        service.process.kill()
        service.process.wait()


@pytest.mark.process
def test_text_has_kafkas_layout(start: Callable[..., Running]) -> None:
    service = start(RUN)
    assert service.end(signal.SIGTERM) == 0
    layout = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] INFO "
    lines = service.err.splitlines()
    assert [line for line in lines if re.fullmatch(layout + r"\[KafkaServer id=1001\] started \(kafka\.server\.KafkaServer\)", line)]
    assert [line for line in lines if "Transitioning from RECOVERY to RUNNING" in line]
    assert all(re.match(layout, line) for line in lines)


@pytest.mark.process
@pytest.mark.parametrize("host", [RUN, TWISTD], ids=["run", "twistd"])
def test_with_json_every_line_is_json(host: tuple[str, ...], start: Callable[..., Running]) -> None:
    service = start(host, "--log-format", "json", "--log-level", "warning", "--log-level", "kafka=info", "--log-level", "txbroker=debug")
    assert service.end(signal.SIGTERM) == 0
    text = service.err if host is RUN else service.out
    lines = [json.loads(line) for line in text.splitlines()]
    started = [line for line in lines if line["message"] == "[KafkaServer id=1001] started"]
    assert [(line["level"], line["logger"]) for line in started] == [("INFO", "kafka.server.KafkaServer")]
    assert {line["level"] for line in lines if line["logger"].startswith("txbroker")} >= {"DEBUG", "INFO"}
    assert not [line for line in lines if line["level"] == "INFO" and line["logger"] == "twisted"]


@pytest.mark.process
def test_json_goes_to_the_file_that_twistd_writes(start: Callable[..., Running], tmp_path: Path) -> None:
    host = (*TWISTD[:3], "-n", "--logfile", "own.log", "txbroker")
    service = start(host, "--log-format", "json")
    assert service.end(signal.SIGTERM) == 0
    assert service.out == ""
    lines = [json.loads(line) for line in (tmp_path / "own.log").read_text().splitlines()]
    assert {"twisted", "kafka.server.KafkaServer"} <= {line["logger"] for line in lines}
