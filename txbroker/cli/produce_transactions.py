"""The transactions of `txbroker produce --transactional-id`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from txbroker.cli.arguments import INT32_MAX
from txbroker.console.failures import BadUsage, CommandFailed, broker_error
from txbroker.errors import ErrorCode

TIMEOUT = "transaction.timeout.ms"
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# kafka-python has a broker's error in the text of its own one.
_CODE = re.compile(r"\[Error (\d+)\]")


def check(arguments: argparse.Namespace, properties: Mapping[str, str]) -> None:
    """BadUsage for flags and properties of the producer that exclude transactions."""
    if arguments.transactional_id is None:
        if arguments.transaction_duration_ms is not None:
            raise BadUsage("--transaction-duration-ms needs --transactional-id")
        return
    if not arguments.transactional_id:
        raise BadUsage("--transactional-id is empty; leave it out to write without a transaction")
    if arguments.request_required_acks not in (None, "-1", "all"):
        raise BadUsage(f"--transactional-id needs --request-required-acks all, not {arguments.request_required_acks}")
    if arguments.message_send_max_retries == 0:
        raise BadUsage("--transactional-id needs --message-send-max-retries of 1 or more")
    timeout = properties.get(TIMEOUT, "1").strip()
    if not (timeout.isascii() and timeout.isdecimal() and 0 < int(timeout) <= INT32_MAX):
        raise BadUsage(f"{TIMEOUT} is {timeout!r}; it must be a whole number from 1 to {INT32_MAX}")


class NoTransactions:
    """Without --transactional-id."""

    is_due = False

    def next(self) -> None:
        """Nothing is to be committed."""


class Transactions:
    """A context in which a transaction is open; it is committed at the end, and aborted if an exception leaves the context.

    `duration_ms`: after how long a transaction `is_due`; None: it lasts until the end of the context. An error of the coordinator, or one
    that a fenced producer gets, becomes a CommandFailed that says which lines are written.
    """

    def __init__(self, producer: Any, duration_ms: int | None, clock_s: Callable[[], float]) -> None:
        self._producer = producer
        self._id = producer.config["transactional_id"]
        self._timeout_ms = producer.config["transaction_timeout_ms"]
        self._duration_s = float("inf") if duration_ms is None else duration_ms / 1000
        self._clock_s = clock_s
        self._begun_s = clock_s()
        self._committed = 0

    def __enter__(self) -> Self:
        with self._explaining(f"transactional id {self._id} cannot be used"):
            self._producer.init_transactions()
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._commit()
            return
        with suppress(Exception):  # the failure that ended the context is the one to report; a fenced producer cannot abort
            self._producer.abort_transaction()
        if isinstance(error, CommandFailed) and self._code(error) in _FENCED:
            raise self._fenced() from error

    @property
    def is_due(self) -> bool:
        """Whether the transaction has lasted long enough."""
        return self._clock_s() - self._begun_s >= self._duration_s

    def next(self) -> None:
        """Commit, and begin another transaction."""
        self._commit()
        self._begin()

    def _begin(self) -> None:
        self._producer.begin_transaction()
        self._begun_s = self._clock_s()

    def _commit(self) -> None:
        with self._explaining(f"the transaction of {self._id} was not committed"):
            self._producer.commit_transaction()
        self._committed += 1

    @contextmanager
    def _explaining(self, what: str) -> Iterator[None]:
        """`what`: what failed."""
        from kafka.errors import KafkaError

        try:
            yield
        except KafkaError as error:
            code = self._code(error)
            if code is None:
                raise
            raise (self._fenced() if code in _FENCED else broker_error(what, code, None)) from error

    def _code(self, error: Exception) -> int | None:
        """The broker's error code behind an error: its own, one in its text, or that of the error because of which the library refuses."""
        code = error.code if isinstance(error, CommandFailed) else getattr(error, "errno", None)
        if code is not None:
            return int(code)
        found = _CODE.search(f"{error} {self._producer._transaction_manager.last_error}")
        return None if found is None else int(found[1])

    def _fenced(self) -> CommandFailed:
        """A newer epoch exists: that of another producer, or the one in which the coordinator has aborted the transaction."""
        lines = "its lines are not committed, those of the transactions before are" if self._committed else "no line is committed"
        if (self._clock_s() - self._begun_s) * 1000 >= self._timeout_ms:
            problem = f"the transaction of {self._id} was open for longer than {TIMEOUT} ({self._timeout_ms}), and was aborted"
            advice = f"use --transaction-duration-ms, or a larger --command-property {TIMEOUT}"
        else:
            problem = f"another producer with --transactional-id {self._id} has started, or the transaction was ended from outside"
            advice = "run one producer with an id at a time"
        return CommandFailed(f"{problem}; {lines}; {advice}", ErrorCode.PRODUCER_FENCED)
