"""One topic of a cluster, for commands: its leaders, requests to a bootstrap server, and retries while an error passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from txbroker.client.auto_create import creates_topics
from txbroker.client.blocking_connection import BlockingConnection, connect_to_any
from txbroker.client.client_errors import ClientError, RequestFailed, TooOld, TopicMissing
from txbroker.client.client_machine import ClientSettings
from txbroker.client.topic_leaders import RETRIABLE, TopicLeaders, leaders_in, metadata_request
from txbroker.errors import ErrorCode
from txbroker.wire.schema import Request

T = TypeVar("T")

RETRY_TIMEOUT_S = 15.0
BACKOFF_S_MIN = 0.01


class TopicMetadata:
    """Connected to the first of `addresses` that answers; ClientError. `create`: the broker may create the topic."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], topic: str, settings: ClientSettings, backoff_s: float, *, create: bool
    ) -> None:
        self.topic = topic
        self._addresses = addresses
        self._settings = settings
        self._backoff_s = max(backoff_s, BACKOFF_S_MIN)
        self._create = create
        self._connection: BlockingConnection | None = connect_to_any(addresses, settings)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def check_supported(self, request: type[Request]) -> None:
        """TooOld unless the bootstrap server supports a version of this request."""
        self._connected().machine.required_version(request)

    def leaders(self) -> TopicLeaders:
        """The leaders, once every partition has one; RequestFailed after RETRY_TIMEOUT_S without, TopicMissing, ConnectionFailed."""
        return self.retry(self._complete_leaders, f"topic {self.topic} cannot be used")

    def refresh(self) -> TopicLeaders | None:
        """The leaders now, without waiting; None when no broker answers, or an error that passes came instead."""
        try:
            found = leaders_in(self.call(metadata_request(self.topic, create=self._create)), self.topic)
        except TooOld:
            raise
        except ClientError:
            self.close()
            return None
        return None if isinstance(found, int) else found

    def retry(self, attempt: Callable[[], int | T], what: str) -> T:
        """Call `attempt` until it returns something else than a retriable error code; RequestFailed (`what` failed) when it does not."""
        deadline_s = time.monotonic() + RETRY_TIMEOUT_S
        while True:
            outcome = attempt()
            if not isinstance(outcome, int):
                return outcome
            if outcome not in RETRIABLE or time.monotonic() > deadline_s:
                raise RequestFailed(what, outcome)
            time.sleep(self._backoff_s)

    def call(self, request: Request) -> Any:
        """The bootstrap server's response; ClientError."""
        return self._connected().call(request)

    def _connected(self) -> BlockingConnection:
        if self._connection is None:
            self._connection = connect_to_any(self._addresses, self._settings)
        return self._connection

    def _complete_leaders(self) -> TopicLeaders | int:
        found = leaders_in(self.call(metadata_request(self.topic, create=self._create)), self.topic)
        if not isinstance(found, int):
            return found if found.complete else int(ErrorCode.LEADER_NOT_AVAILABLE)
        if found == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not (self._create and creates_topics(self._connected()) is not False):
            raise TopicMissing(self.topic)  # Kafka answers this too while it creates the topic
        return found
