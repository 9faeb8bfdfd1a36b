"""Reads the files that flags name, up to a size limit."""

from __future__ import annotations

import json
from typing import Any

from txbroker.console.failures import CommandFailed

BYTES_MAX = 16 * 1024 * 1024


def read_bytes(path: str) -> bytes:
    """The bytes of a file; CommandFailed if it cannot be read or is larger than `BYTES_MAX`."""
    try:
        with open(path, "rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}; correct the path") from error
    if len(data) > BYTES_MAX:
        raise CommandFailed(f"{path} is larger than {BYTES_MAX} bytes; split it")
    return data


def read_text(path: str) -> str:
    """The text of a file in UTF-8; CommandFailed."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{path} is not UTF-8 at byte {error.start}; correct the file") from None


def read_json(path: str) -> Any:
    """The content of a JSON file; CommandFailed."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CommandFailed(f"{path} is not valid JSON ({error}); correct the file") from None
