"""What exceptions of Spark mean, as errors that say what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from txbroker.console.failures import CommandFailed
from txbroker.spark.offset_ranges import WrongData

DAMAGED = "txbroker-damaged: "
"""Begins the text that SQL passes to `raise_error` if a file is damaged; it ends with a full stop."""


@contextmanager
def spark_failures() -> Iterator[None]:
    """Exceptions of Spark and of its gateway leave as CommandFailed; others as they are."""
    try:
        yield
    except Exception as error:
        if is_of_spark(error):
            raise failure(error) from error
        raise


def is_of_spark(error: BaseException) -> bool:
    """Whether it is an exception of Spark or of its gateway."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def is_expired(error: Exception) -> bool:
    """Whether Spark's source found that offsets were deleted."""
    return re.search(r"OffsetOutOfRange|KAFKA_DATA_LOSS|some data may have been lost", str(error)) is not None


def failure(error: Exception) -> CommandFailed:
    """What an exception of Spark means, with what to do about it."""
    text = str(error)
    damaged = re.search(rf"{DAMAGED}(.*)\.(?: SQLSTATE|$)", text, flags=re.M)
    if damaged is not None:
        return WrongData(damaged[1])
    if is_expired(error):
        return CommandFailed("offsets were deleted while they were being read, and nothing was written; "
                             "run this again, with --on-expired skip to go on without them")
    if "long overflow" in text:
        return CommandFailed("a record has a timestamp that Spark cannot represent (after the year 294247); nothing was written; "
                             "`txbroker get-offsets --time max-timestamp` shows the partition")
    if "ConcurrentTransaction" in text or "ConcurrentModification" in text:
        return CommandFailed("another job committed to the table first, and this one wrote nothing; run it again")
    ours = re.findall(r"^txbroker\.[\w.]+: (.+)$", text, flags=re.M)  # of a task in Python; it says what to do
    return CommandFailed(ours[-1] if ours else f"Spark failed: {reason(error)}; correct that and run this again")


def reason(error: Exception) -> str:
    """The cause of an exception of Spark or of its gateway, in one line: the last one that its text names."""
    text = str(error).strip()
    return cause_in(text) or (text.splitlines()[0].rstrip(".") if text else type(error).__name__)


def cause_in(text: str) -> str | None:
    """The last exception of Java or of a task that a text or a log names, in one line."""
    begins = r'(?:Caused by: |: |Exception in thread "[^"]*" )?'
    causes = re.findall(rf"^{begins}([\w.$]+(?:Exception|Error|Failed)): (.+)$", text, flags=re.M)
    return ": ".join(causes[-1]).rstrip(";") if causes else None
