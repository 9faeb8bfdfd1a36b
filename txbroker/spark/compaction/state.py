"""The snapshot that `--before` takes: a folder with rows as Parquet, and with a manifest that is written last."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.compaction.facts import Part, TopicRules
from txbroker.spark.reports import write_report

MANIFEST, ROWS, HORIZONS, AFTER = "manifest.json", "rows", "horizons", "after"
_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True)
class Before:
    """`taken_ms`: when it began. `files`: from segment files. `rows`: how many each partition has.

    `clean_ends`: up to where the cleaner had come, where that was known; for people.
    """

    taken_ms: int
    cluster_id: str
    files: bool
    rules: Mapping[str, TopicRules]
    parts: Sequence[Part]
    rows: Mapping[Part, int]
    clean_ends: Mapping[tuple[str, str, int], int]

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        topics = [
            {"topic": topic, "topic_id": one.topic_id, "cleanup_policy": list(one.policies), "strategy": one.order.strategy.value,
             "header": one.order.header, "delete_retention_ms": one.delete_retention_ms} for topic, one in sorted(self.rules.items())
        ]  # fmt: skip
        parts = [{**part._asdict(), "rows": self.rows[part], "clean_end": self.clean_ends.get(part[:3])} for part in self.parts]
        return {"taken_ms": self.taken_ms, "cluster_id": self.cluster_id, "files": self.files, "topics": topics, "partitions": parts}


class State:
    """The folder."""

    def __init__(self, path: str) -> None:
        self.folder = Path(path).absolute()

    def path(self, name: str) -> str:
        """A folder of rows, as Spark has to be given it: on a file system that the driver and all executors mount."""
        return (self.folder / name).as_uri()

    def check_free(self) -> None:
        """BadUsage if there is a snapshot."""
        if (self.folder / MANIFEST).exists():
            raise BadUsage(f"{self.folder} has a snapshot already; specify another --state, or remove the folder")

    def begin(self) -> None:
        """Prepare for a new snapshot; CommandFailed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"{self.folder} cannot be created: {error.strerror}; correct --state") from None

    def write(self, before: Before, spark_version: str) -> None:
        """The end of a snapshot; CommandFailed."""
        write_report(str(self.folder / MANIFEST), "compaction-check", spark_version, before.as_json())

    def read(self) -> Before:
        """The snapshot; CommandFailed if there is none, or it is damaged."""
        path = self.folder / MANIFEST
        try:
            if path.stat().st_size > _BYTES_MAX:
                raise ValueError("it is too large")
            found = json.loads(path.read_text("utf-8"))
            rules = {one["topic"]: _rules(one) for one in found["topics"]}
            rows = {Part(**{name: one[name] for name in Part._fields}): int(one["rows"]) for one in found["partitions"]}
            ends = {(one["replica"], one["topic"], one["partition"]): one["clean_end"] for one in found["partitions"]}
            clean_ends = {key: int(end) for key, end in ends.items() if end is not None}
            return Before(int(found["taken_ms"]), found["cluster_id"], found["files"], rules, list(rows), rows, clean_ends)
        except FileNotFoundError:
            raise CommandFailed(f"{self.folder} has no snapshot, or only a part of one; take one with --before") from None
        except OSError as error:
            raise CommandFailed(f"{path} cannot be read: {error.strerror}; correct --state") from None
        except (ValueError, KeyError, TypeError) as error:
            raise CommandFailed(f"{path} is damaged: {error}; take a new snapshot with --before") from None


def _rules(found: Mapping[str, Any]) -> TopicRules:
    order = CompactionOrder(Strategy(found["strategy"]), found["header"])
    return TopicRules(found["topic_id"], found["cleanup_policy"], order, int(found["delete_retention_ms"]))
