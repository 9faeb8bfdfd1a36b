"""A file for what Spark logs and its JVM prints, so that the terminal has the job's own lines only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import BinaryIO

from txbroker.console.failures import CommandFailed
from txbroker.spark.offset_ranges import WrongData
from txbroker.spark.spark_failures import is_of_spark

BYTES_MAX = 64 * 1024 * 1024
CHECK_S = 60.0


@contextmanager
def spark_log(bytes_max: int = BYTES_MAX, check_s: float = CHECK_S) -> Iterator[BinaryIO]:
    """A new file, removed at the end. It stays after an exception of Spark, whose CommandFailed names it, and after a defect.

    When it has more than `bytes_max` it is emptied, which is looked at every `check_s`: `load --every` runs for months.
    """
    created, path = tempfile.mkstemp(prefix="txbroker-spark-", suffix=".log")
    os.close(created)
    stays = False
    try:
        with open(path, "a+b", buffering=0) as file, _bounded(file, bytes_max, check_s):
            yield file  # in append mode, which the JVM inherits: what follows after it was emptied is at its beginning
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


@contextmanager
def _bounded(file: BinaryIO, bytes_max: int, check_s: float) -> Iterator[None]:
    ended = Event()

    def check() -> None:
        while not ended.wait(check_s):
            if os.fstat(file.fileno()).st_size > bytes_max:
                file.truncate(0)

    checking = Thread(target=check, name="log of Spark", daemon=True)
    checking.start()
    try:
        yield
    finally:
        ended.set()
        checking.join()
