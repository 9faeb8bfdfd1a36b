"""The audit log of a broker: what its configuration has recorded, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed

from txbroker.broker.environment import Environment
from txbroker.broker.own_login import own_user
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError, StorageError
from txbroker.security.principals import super_users

if TYPE_CHECKING:
    from txbroker.broker.audit_file import AuditFile
    from txbroker.broker.audit_topic import AuditTopic, Leaders
    from txbroker.security.audit_trail import AuditTrail, Subject

KEY = "txbroker.audit.file"
TOPIC_KEY = "txbroker.audit.topic"


class AuditLog:
    """`trail`: from `begin` on; None without txbroker.audit.file and txbroker.audit.topic."""

    def __init__(self, config: BrokerConfig, environment: Environment, inter_broker: str) -> None:
        """`inter_broker`: the listener on which brokers log in at each other."""
        self._config = config
        self._environment = environment
        self._inter_broker = inter_broker
        self.trail: AuditTrail | None = None
        self.file: AuditFile | None = None
        self.topic: AuditTopic | None = None
        self._broker_id = -1
        path, topic = config.optional_text(KEY), config.optional_text(TOPIC_KEY)
        if path is not None:
            self._open_file(path, config, environment)
        if topic is not None:
            from txbroker.broker.audit_topic import AuditTopic  # imports a client's modules

            self.topic = AuditTopic(topic, environment.reactor, environment.random.random, environment.now_ms, self._report)

    @property
    def dropped(self) -> int:
        """How many lines are lost, in the file or in the topic."""
        return sum(part.dropped for part in (self.file, self.topic) if part is not None)

    async def start(self) -> None:
        """Open the file; StartError."""
        if self.file is not None:
            try:
                await self._in_worker(self.file.open)
            except StorageError as error:
                raise StartError(f"{self._place}{error}; correct the path, or its permissions") from error

    def begin(self, broker_id: int) -> None:
        """Record from now on, as this broker."""
        self._broker_id = broker_id
        if self.file is None and self.topic is None:
            return
        from txbroker.security.audit_trail import AuditTrail, Kind

        config, inter_broker = self._config, self._inter_broker
        excluded = super_users(config.optional_text("txbroker.audit.excluded.principals"))
        user = own_user(config)
        own = None if user is None else f"User:{user}"

        def is_broker(client: Subject) -> bool:
            return client.principal in excluded or (client.principal == own and client.listener == inter_broker)

        self.trail = AuditTrail(
            self._write,
            [Kind(name) for name in config.list("txbroker.audit.events")],
            self._environment.reactor,
            self._environment.now_ms,
            broker_id,
            is_broker=is_broker,
            use_period_s=config.int("txbroker.audit.use.period.ms") / 1000,
            own_topic=None if self.topic is None else self.topic.name,
        )

    def open_topic(self, leaders: Callable[[str], Leaders]) -> None:
        """Lines can be sent to the topic, if there is one, from now on: `leaders` makes the way to it."""
        if self.topic is not None:
            self.topic.open(leaders(self.topic.name))

    def finish_topic(self) -> Deferred[None]:
        """Fires when the topic has all lines, or after a few seconds. For a broker that still serves, but is about to stop."""
        if self.topic is None:
            return succeed(None)
        if self.trail is not None:
            self.trail.stop()
        return self.topic.finish()

    def close_topic(self) -> None:
        """Send no more to the topic."""
        if self.topic is not None:
            self.topic.close()

    def stop(self) -> Deferred[None]:
        """Fires when all lines are written to the file."""
        if self.trail is not None:
            self.trail.stop()
        return succeed(None) if self.file is None else self.file.close()

    def tls_refused(self, client: Any, reason: str) -> None:
        """A TLS handshake has failed. `reason`: as in the log."""
        if self.trail is not None:
            from txbroker.security.sasl_exchange import Cause

            self.trail.login_failed(client, None, "TLS", "", Cause.TLS, reason)

    def _open_file(self, path: str, config: BrokerConfig, environment: Environment) -> None:
        from txbroker.broker.audit_file import AuditFile

        self._place = f"{config.static.place((KEY,))}{KEY} is {path}: "
        self._in_worker = environment.in_worker
        self.file = AuditFile(
            path,
            config.int("txbroker.audit.file.max.bytes"),
            config.int("txbroker.audit.file.count"),
            environment.disk,
            environment.in_worker,
            environment.monotonic_s,
            self._report,
        )

    def _write(self, line: bytes) -> None:
        if self.file is not None:
            self.file.write(line)
        if self.topic is not None:
            self.topic.write(line)

    def _report(self, count: int) -> bytes:
        return json.dumps({"broker": self._broker_id, "event": "dropped", "left_out": count}).encode() + b"\n"
