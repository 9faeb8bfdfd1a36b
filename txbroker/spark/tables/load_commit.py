"""What `load` writes into a table with each commit, as JSON: the offsets, the cluster and the topics that the data is from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.console.failures import CommandFailed
from txbroker.spark.offset_ranges import OffsetRange, TableOffsets

KEY = "txbroker.load"
SCHEMA_VERSION = 1


class LoadCommit(NamedTuple):
    """`table`: what the table has after this commit. `ranges`: what it adds.

    `checked`: None in a commit with data, whose gaps are not classified yet. The commit after it has no data, the same ranges, and how many
    offsets of each partition have a record, or none for which reason: `[{"topic", "partition", "rows", "compacted", ...}]`.

    `rebased_from`: the ids of cluster and topics that the table had before, if this commit is the first one with other ids.
    """

    run: str
    isolation_level: str
    table: TableOffsets
    ranges: Sequence[OffsetRange]
    expired: Sequence[OffsetRange]
    checked: Sequence[Mapping[str, Any]] | None = None
    rebased_from: Mapping[str, Any] | None = None

    @property
    def version(self) -> int:
        """Grows with each commit of a table."""
        return 2 * self.table.version + (self.checked is not None)

    def to_json(self, key: str = KEY) -> str:
        """For the commit's metadata; `key`: of the job."""
        content = {
            "schema": SCHEMA_VERSION,
            "run": self.run,
            "isolation_level": self.isolation_level,
            "cluster_id": self.table.cluster_id,
            "topic_ids": self.table.topic_ids,
            "offsets": self.table.offsets,
            "ranges": list(self.ranges),
            "expired": list(self.expired),
            "checked": self.checked,
            "rebased_from": self.rebased_from,
        }
        return json.dumps({key: content})


def parse(text: str | None, key: str = KEY) -> LoadCommit | None:
    """The commit in a commit's metadata; None if another program or job wrote it. CommandFailed for one that cannot be understood."""
    try:
        content = json.loads(text or "")[key]
    except (ValueError, TypeError, KeyError):
        return None
    try:
        if content["schema"] != SCHEMA_VERSION:
            raise CommandFailed(f"the table was written by a newer version of txbroker (schema {content['schema']}); install that version")
        offsets = {str(topic): {int(index): int(end) for index, end in some.items()} for topic, some in content["offsets"].items()}
        topic_ids = {str(topic): str(topic_id) for topic, topic_id in content["topic_ids"].items()}
        if offsets.keys() != topic_ids.keys() or not offsets:
            raise ValueError("topics and their ids differ")
        table = TableOffsets(str(content["cluster_id"]), topic_ids, offsets)
        ranges, expired = ([OffsetRange(*one) for one in content[key]] for key in ("ranges", "expired"))
        return LoadCommit(str(content["run"]), str(content["isolation_level"]), table, ranges, expired, content["checked"],
                          content.get("rebased_from"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandFailed(f"the offsets in the table's last commit cannot be read ({type(error).__name__}: {error}); "
                            "restore the table to an earlier version") from None
