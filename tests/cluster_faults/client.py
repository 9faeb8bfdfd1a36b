"""A client of a fault test: a thread that works until it is stopped, and reports to the journal."""

from __future__ import annotations

import itertools
import traceback
from abc import ABC, abstractmethod
from threading import Event, Thread

from tests.cluster_faults.journal import Journal
from tests.crash.ledger import Lost
from tests.support.waiting import PATIENCE_S


class FaultClient(ABC):
    """One client. `name` is unique in the test."""

    stop_timeout_s = PATIENCE_S

    def __init__(self, name: str, bootstrap: str, topic: str, journal: Journal) -> None:
        self.name = name
        self.end = Event()
        self._bootstrap = bootstrap
        self._topic = topic
        self._journal = journal
        self._numbers = itertools.count(1)
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run_and_note, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Complete what is under way, and end; Lost with what went wrong."""
        self.end.set()
        self._thread.join(self.stop_timeout_s)
        self.check()
        if self._thread.is_alive():
            raise Lost(f"{self.name} does not end")

    def check(self) -> None:
        """Raise what went wrong."""
        if self._error is not None:
            raise Lost(f"{self.name}: {''.join(traceback.format_exception(self._error))}") from self._error

    def failed(self, error: BaseException) -> None:
        """An error that no fault explains: the client ends."""
        self._error = self._error or error
        self.end.set()

    def _run_and_note(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failed(error)

    @abstractmethod
    def _run(self) -> None:
        """Work until `end`."""
