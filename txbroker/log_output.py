"""The process's log: its levels, and its format: text in Kafka's layout, or one JSON object per line.

    [2026-01-31 12:00:00,123] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)
    {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "kafka.server.KafkaServer", "message": "[KafkaServer id=1] started"}

Messages have names that clients choose. So control characters are escaped, and as text the further lines of a message are indented: each
line that begins with a time is one of this process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from txbroker.console.streams import whole_lines
from txbroker.console.texts import visible
from txbroker.names import TopicPartition

TEXT, JSON = FORMATS = ("text", "json")
TEXT_LAYOUT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"

LEVELS = ("debug", "info", "warning", "error", "critical")
# Kafka's names of levels, where they differ.
_SYNONYMS = {"trace": "debug", "warn": "warning", "fatal": "critical"}
DEFAULT_LEVEL = "info"
ROOT = ""


def parse_levels(texts: Sequence[str]) -> dict[str, str]:
    """Parse `LEVEL` and `LOGGER=LEVEL` arguments: the level of each logger; ROOT has the level of the others. ValueError."""
    levels = {ROOT: DEFAULT_LEVEL}
    for text in texts:
        name, equals, level = text.rpartition("=")
        level = _SYNONYMS.get(level.strip().lower(), level.strip().lower())
        if level not in LEVELS or (equals and not name.strip()):
            raise ValueError(f"must be LEVEL or LOGGER=LEVEL, where LEVEL is one of {', '.join(LEVELS)}; got {text!r}")
        levels[name.strip()] = level
    return levels


def write_log(stream: TextIO, log_format: str, levels: Mapping[str, str]) -> None:
    """Write standard logging to `stream` from now on."""
    handler = logging.StreamHandler(whole_lines(stream))
    handler.setFormatter(JsonFormatter() if log_format == JSON else TextFormatter(TEXT_LAYOUT))
    logging.getLogger().addHandler(handler)
    set_levels(levels)


def set_levels(levels: Mapping[str, str]) -> None:
    """Set the level of each logger."""
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """Kafka's layout; the further lines of a message, and of a traceback, begin with a tab, as in Twisted's logs."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n\t".join(lines(super().format(record)))


def lines(text: str) -> list[str]:
    """The lines of a message, with control characters escaped."""
    return [visible(line) for line in text.split("\n")]


class JsonFormatter(logging.Formatter):
    """One object per line: time (UTC), level, logger, message, exception, topic, partition, and the fields given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if isinstance(record.args, tuple):
            for argument in record.args:
                if isinstance(argument, TopicPartition):
                    line.setdefault("topic", argument.topic)
                    line.setdefault("partition", argument.partition)
        line |= {name: value for name, value in vars(record).items() if name not in _OWN and name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return text if text.isprintable() else "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


# The attributes of every record; others were given as `extra`.
_OWN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "log_event"})
