"""A job's report as a file: written last and whole, since it is the verdict. Some masters of Spark lose a job's exit status."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txbroker import __version__
from txbroker.console.failures import CommandFailed

SCHEMA_VERSION = 1  # of all reports; fields are only added


def whole_report(job: str, spark_version: str | None, content: Mapping[str, Any]) -> dict[str, Any]:
    """The report with its schema and the versions of what wrote it. `spark_version`: None for a job without Spark."""
    versions = {"txbroker": __version__} if spark_version is None else {"txbroker": __version__, "spark": spark_version}
    return {"schema": SCHEMA_VERSION, "job": job, **versions, **content}


def write_report(path: str, job: str, spark_version: str | None, content: Mapping[str, Any]) -> None:
    """Write the whole report as JSON; CommandFailed when it cannot be written."""
    write_file(path, f"{json.dumps(whole_report(job, spark_version, content), indent=1)}\n", "--json")


def write_file(path: str, text: str, flag: str) -> None:
    """Write a file in one step; CommandFailed when it cannot be written. `flag`: that named it."""
    new = Path(f"{path}.{os.getpid()}.new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise CommandFailed(f"the report {path} cannot be written: {error.strerror}; correct {flag}") from error


def remove_report(path: str, flag: str = "--json") -> None:
    """Remove the report of an earlier run: no file means that the job has not finished. CommandFailed when it cannot be removed."""
    try:
        Path(path).unlink(missing_ok=True)
        if not Path(path).absolute().parent.is_dir():
            raise CommandFailed(f"the folder of the report {path} does not exist; create it, or correct {flag}")
    except OSError as error:
        raise CommandFailed(f"the report {path} cannot be replaced: {error.strerror}; correct {flag}") from error
