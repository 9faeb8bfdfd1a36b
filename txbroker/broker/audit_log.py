"""The audit log of a broker: what its configuration has recorded, and where."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, succeed

from txbroker.broker.audit_file import AuditFile
from txbroker.broker.environment import Environment
from txbroker.broker.own_login import own_user
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError, StorageError
from txbroker.security.audit_trail import AuditTrail, Kind, Subject
from txbroker.security.principals import super_users
from txbroker.security.sasl_exchange import Cause

KEY = "txbroker.audit.file"


class AuditLog:
    """`trail`: None without txbroker.audit.file."""

    def __init__(self, config: BrokerConfig, environment: Environment, broker_id: int, inter_broker: str) -> None:
        """`inter_broker`: the listener on which brokers log in at each other."""
        self.trail: AuditTrail | None = None
        self.file: AuditFile | None = None
        self._broker_id = broker_id
        path = config.optional_text(KEY)
        if path is None:
            return
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
        excluded = super_users(config.optional_text("txbroker.audit.excluded.principals"))
        user = own_user(config)
        own = None if user is None else f"User:{user}"

        def is_broker(client: Subject) -> bool:
            return client.principal in excluded or (client.principal == own and client.listener == inter_broker)

        self.trail = AuditTrail(
            self.file.write,
            [Kind(name) for name in config.list("txbroker.audit.events")],
            environment.reactor,
            environment.now_ms,
            broker_id,
            is_broker=is_broker,
            use_period_s=config.int("txbroker.audit.use.period.ms") / 1000,
        )

    async def start(self) -> None:
        """Open the file; StartError."""
        if self.file is not None:
            try:
                await self._in_worker(self.file.open)
            except StorageError as error:
                raise StartError(f"{self._place}{error}; correct the path, or its permissions") from error

    def stop(self) -> Deferred[None]:
        """Fires when all lines are written."""
        if self.trail is None or self.file is None:
            return succeed(None)
        self.trail.stop()
        return self.file.close()

    def tls_refused(self, client: Any, reason: str) -> None:
        """A TLS handshake has failed. `reason`: as in the log."""
        if self.trail is not None:
            self.trail.login_failed(client, None, "TLS", "", Cause.TLS, reason)

    def _report(self, count: int) -> bytes:
        return json.dumps({"broker": self._broker_id, "event": "dropped", "left_out": count}).encode() + b"\n"
