"""What a mirror is to do, and its limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from txbroker.client.client_security import ClientSecurity

# Own topic on the target: docs/mirror.md describes its records.
MAP_TOPIC = "__txbroker_mirror"
DEFAULT_NAME = "mirror"


class Environment(NamedTuple):
    """The reactor with its monotonic clock, random numbers from 0 to 1, and the wall clock."""

    reactor: Any
    chance: Callable[[], float]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """Addresses are (host, port); times in seconds, sizes in bytes.

    `topics` are copied, and those whose whole name matches `include`. `run_id` differs in each run. `replication_factor`: of topics that
    the mirror creates; -1 is the target's default.
    """

    source: Sequence[tuple[str, int]]
    target: Sequence[tuple[str, int]]
    run_id: str
    source_security: ClientSecurity | None = None
    target_security: ClientSecurity | None = None
    topics: Sequence[str] = ()
    include: re.Pattern[str] | None = None
    groups: re.Pattern[str] | None = None
    name: str = DEFAULT_NAME
    same_offsets: bool = False
    skip_expired: bool = False
    accept_doubles: bool = False
    until_caught_up: bool = False
    replication_factor: int = -1
    discover_every_s: float = 30.0
    groups_every_s: float = 10.0
    checkpoint_every_s: float = 1.0
    progress_every_s: float = 10.0
    fetch_wait_s: float = 0.2
    partition_bytes: int = 1 << 20  # fetched at once from one partition
    fetch_bytes: int = 8 << 20  # fetched at once from one broker
    buffer_bytes: int = 64 << 20  # of batches in memory
    request_bytes: int = 4 << 20  # produced at once to one broker
    requests_in_flight: int = 5  # to one broker: it remembers as many batches of a producer (Kafka's ProducerStateEntry)

    def selects(self, topic: str) -> bool:
        """Whether the topic is to be copied. A pattern does not select names that begin with two underscores, which are internal."""
        if topic in self.topics:
            return True
        return self.include is not None and not topic.startswith("__") and self.include.fullmatch(topic) is not None
