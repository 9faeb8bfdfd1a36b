"""The errors that a client in Python logs. Standard library only."""

from __future__ import annotations

import logging
from types import TracebackType


class Logged(logging.Handler):
    """While it is open it keeps the errors in the log of a package, each text once."""

    def __init__(self, package: str) -> None:
        super().__init__(logging.ERROR)
        self._logger = logging.getLogger(package)
        self.texts: list[str] = []

    def __enter__(self) -> Logged:
        self._logger.addHandler(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, with the exception that it reports."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        if text not in self.texts:
            self.texts.append(text)
