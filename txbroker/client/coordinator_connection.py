"""The coordinator of a group or of a transactional id: found, and asked again while an error passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeVar

from txbroker.client.blocking_connection import BlockingConnection, connect_to_any, connect_to_broker
from txbroker.client.client_errors import LOST, ClientError, NoBroker, RequestFailed
from txbroker.client.client_machine import ClientSettings
from txbroker.client.topic_leaders import RETRIABLE, Broker
from txbroker.errors import ErrorCode
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

RETRY_FOR_S = 30.0
_FIND_VERSION = 3  # the newest one for a single key
# The coordinator is the right one, and will serve the request soon.
_BUSY = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
T = TypeVar("T")


class KeyType(IntEnum):
    """What is coordinated (CoordinatorType in Kafka), with the word for it in error messages."""

    GROUP = 0
    TRANSACTIONAL_ID = 1

    @property
    def text(self) -> str:
        return self.name.lower().replace("_", " ")


class CoordinatorConnection:
    """Connects when it is first used. `key`: the group or the transactional id; `retry_s`: the pause before another attempt."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], key_type: KeyType, key: str, settings: ClientSettings, retry_s: float
    ) -> None:
        self.key = key
        self._key_type = key_type
        self._addresses = addresses
        self._settings = settings
        self._retry_s = retry_s
        self._connection: BlockingConnection | None = None
        self._has_connected = False

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, ask: Callable[[BlockingConnection], tuple[int, T]], what: str, retry_for_s: float = RETRY_FOR_S) -> T:
        """The answer of `ask`, which returns an error code with it; again for `retry_for_s` while the error is retriable. ClientError.

        `what`: what failed, for the error. It retries brokers that do not answer if one has answered before.
        """
        deadline_s = time.monotonic() + retry_for_s
        while True:
            problem: ClientError
            try:
                if self._connection is None:
                    self._connection = self._find()
                    self._has_connected = True
                code, answer = ask(self._connection)
                if not code:
                    return answer
                problem = RequestFailed(what, code)
            except RequestFailed as refused:
                problem, code = refused, refused.code
            except LOST as lost:
                problem, code = lost, ErrorCode.NETWORK_EXCEPTION
            except NoBroker as down:
                if not self._has_connected:
                    raise
                problem, code = down, ErrorCode.NETWORK_EXCEPTION
            if code not in _BUSY:
                self.close()
            if code not in RETRIABLE or time.monotonic() > deadline_s:
                raise problem
            time.sleep(self._retry_s)

    def _find(self) -> BlockingConnection:
        with connect_to_any(self._addresses, self._settings) as any_broker:
            request = FindCoordinatorRequest(key=self.key, key_type=self._key_type)
            answer: FindCoordinatorResponse = any_broker.call(request, version_max=_FIND_VERSION)
        if answer.error_code:
            what = f"{self._key_type.text} {self.key} has no coordinator"
            raise RequestFailed(what, ErrorCode(answer.error_code), answer.error_message)
        return connect_to_broker(Broker(answer.node_id, answer.host, answer.port), self._settings)
