"""The file of `--ready-file`: it exists while clients are served, and has the address of each listener and the URL of the metrics."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from txbroker.errors import StartError


def write_whole(path: str, text: str) -> None:
    """Write a file that is there as a whole, or not at all; OSError. For other processes of this machine: it is not synced."""
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.tmp", path)


class ReadyFile:
    """Without a path, no file. One process owns it."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._is_own = False

    def remove_earlier(self) -> None:
        """Remove the file of an earlier run, so that no one mistakes it for this one's; StartError."""
        if self.path is None:
            return
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StartError(f"{self.path} cannot be removed: {error.strerror}; correct --ready-file") from error

    def write(self, lines: Iterable[str]) -> None:
        """Clients are served; OSError."""
        if self.path is None:
            return
        write_whole(self.path, "".join(f"{line}\n" for line in lines))
        self._is_own = True

    def remove(self) -> None:
        """Clients are served no more: remove what this object has written."""
        if self.path is not None and self._is_own:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
