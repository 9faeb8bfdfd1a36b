"""Where a job's records come from: the brokers, the topics, and how Spark's consumers read them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txbroker.console.failures import BadUsage
from txbroker.spark import kafka_source
from txbroker.spark.brokers import Brokers, security_of
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.snapshot import Snapshot, check_topics_exist, find_topics, take


@dataclass(frozen=True)
class TopicSource:
    """The topics by name, or those that match `include`. `split`: offsets of one task at most.

    `properties`: of a Java client, for Spark's consumers, and for the security of the jobs' own client.
    """

    servers: str
    topics: Sequence[str] = ()
    include: str | None = None
    isolation_level: str = "read_committed"
    properties: Mapping[str, str] = field(default_factory=dict)
    split: int | None = None

    def check(self) -> None:
        """BadUsage for flags that cannot be used; no broker is asked."""
        if bool(self.topics) is (self.include is not None) or not all(self.topics):
            raise BadUsage("specify either --topic or --include")
        _ = self.pattern
        kafka_source.client_options(self.properties)
        security_of(self.properties)
        if self.servers:  # not without a broker, as with --log-dir
            _ = self.brokers

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """`include`; BadUsage."""
        try:
            return None if self.include is None else re.compile(self.include)
        except re.error as error:
            raise BadUsage(f"--include is {self.include!r}, which is not a regular expression: {error}") from None

    @property
    def brokers(self) -> Brokers:
        """The brokers to connect to first; BadUsage."""
        return Brokers.of(self.servers, self.properties)

    def find(self) -> list[str]:
        """The topics' names, sorted, after `check`; CommandFailed for one that does not exist, ClientError."""
        if self.pattern is not None:
            return find_topics(self.brokers, self.pattern)
        check_topics_exist(self.brokers, self.topics)
        return sorted(set(self.topics))

    def snapshot(self) -> Snapshot:
        """The offsets of the topics now; CommandFailed, BadUsage, ClientError."""
        return take(self.brokers, self.find(), self.isolation_level)

    def records(self, spark: Any, ranges: Sequence[OffsetRange]) -> Any:
        """A DataFrame of `kafka_source.SCHEMA` with the records of these ranges, of which none may be empty."""
        return kafka_source.records(spark, self.servers, ranges, self.isolation_level, self.properties, self.split)
