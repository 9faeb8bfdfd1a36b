"""A file for what Spark logs and its JVM prints, so that the terminal has the job's own lines only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from txbroker.console.failures import CommandFailed
from txbroker.spark.offset_ranges import WrongData
from txbroker.spark.spark_failures import is_of_spark


@contextmanager
def spark_log() -> Iterator[BinaryIO]:
    """A new file, removed at the end. It stays after an exception of Spark, whose CommandFailed names it, and after a defect."""
    fd, path = tempfile.mkstemp(prefix="txbroker-spark-", suffix=".log")
    stays = False
    try:
        with os.fdopen(fd, "r+b", buffering=0) as file:
            yield file
    except CommandFailed as error:
        if isinstance(error, WrongData) or error.__cause__ is None or not is_of_spark(error.__cause__):
            raise
        stays = True
        raise CommandFailed(f"{error}; Spark's log is {path}") from error
    except Exception as error:
        stays = True
        error.add_note(f"Spark's log is {path}")
        raise
    finally:
        if not stays:
            with suppress(OSError):
                os.unlink(path)
