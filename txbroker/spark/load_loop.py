"""`load` again and again, at fixed times: each round is one batch load, and the table is the only state between them.

Spark's streaming is not used: its checkpoint would be a second truth beside the table, and it loads to an end that each task resolves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from txbroker.client.client_errors import ClientError, NotKafka, RequestFailed, TooOld, TopicMissing
from txbroker.console.failures import warn
from txbroker.spark.load import LoadOptions, LoadReport, check_options, load_once
from txbroker.spark.load_metrics import LoadMetrics


class Stop(Protocol):
    """An event that ends the loop after the current round."""

    def is_set(self) -> bool:
        """Whether to end."""

    def wait(self, timeout_s: float, /) -> bool:
        """Wait for it, in seconds."""


@dataclass
class Rounds:
    """What the rounds did. `wrong`: whether one of them found lost, doubled or too many undecodable records."""

    count: int = 0
    rows: int = 0
    wrong: bool = False
    last: LoadReport | None = field(default=None, repr=False)


def load_every(
    spark: Any,
    options: LoadOptions,
    every_s: float,
    stop: Stop,
    on_round: Callable[[LoadReport], None],
    stream: TextIO | None = None,
    metrics: LoadMetrics | None = None,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Rounds:
    """Load now and every `every_s` seconds until `stop` is set, which ends it after the current round.

    A round that takes longer is followed by the next one at once, and the times that it missed are left out. A broker that cannot be
    reached, or stops responding, is retried at the next time. Any other failure ends the loop: as from `load`.
    """
    check_options(options)
    rounds = Rounds()
    next_s = monotonic_s()
    while True:
        if metrics is not None:
            metrics.began()
        try:
            report = load_once(spark, options, stream)
        except (NotKafka, TooOld, RequestFailed, TopicMissing):
            raise
        except ClientError as error:
            warn(f"{error}; trying again in {every_s:g} s")
            if metrics is not None:
                metrics.unreachable(str(error))
        else:
            rounds.count += 1
            rounds.rows += report.rows
            rounds.wrong = rounds.wrong or bool(report.wrong) or report.too_many_bad
            rounds.last = report
            if metrics is not None:
                metrics.ended(report)
            on_round(report)
        next_s = max(next_s + every_s, monotonic_s())
        if stop.is_set() or stop.wait(next_s - monotonic_s()):
            return rounds
