"""Reads the file of users (`txbroker.scram.users.file`) at the start, and again when it has changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.broker.environment import Environment
from txbroker.clock import DelayedCall
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError, StorageError
from txbroker.security.scram import ScramCredential
from txbroker.security.scram_credentials import ScramCredentials
from txbroker.security.users_file import FILE_BYTES_MAX, InvalidUsers, parse_users

log = logging.getLogger("txbroker.security")

KEY = "txbroker.scram.users.file"
READ_EVERY_S = 1.0


class UsersFile:
    """It is read whole each time, as a file may be replaced in several ways; a file that cannot be used leaves the users as they were."""

    def __init__(self, config: BrokerConfig, environment: Environment, credentials: ScramCredentials) -> None:
        self._path = config.optional_text(KEY)
        self._place = config.static.place((KEY,))
        self._environment = environment
        self._credentials = credentials
        self._data: bytes | None = None
        self._problem = ""
        self._timer: DelayedCall | None = None
        self._stopped = False

    def start(self) -> None:
        """Read it, now and when it changes; StartError."""
        if self._path is not None:
            self.read()
            self._wait()

    def read(self) -> None:
        """Read it now, if there is one; StartError."""
        if self._path is None:
            return
        try:
            data = self._read()
            users = parse_users(data)
        except (StorageError, InvalidUsers) as error:
            raise StartError(f"{self._place}{KEY} is {self._path}: {error}") from error
        self._use(data, users)

    def stop(self) -> None:
        """Read it no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        if not self._stopped:
            self._timer = self._environment.reactor.callLater(READ_EVERY_S, self._look)

    def _look(self) -> None:
        self._timer = None
        read: Deferred[None] = self._environment.in_worker(self._read).addCallback(self._have_read)
        read.addErrback(self._cannot_use).addBoth(lambda _: self._wait())

    def _read(self) -> bytes:
        """StorageError, InvalidUsers."""
        assert self._path is not None
        disk = self._environment.disk
        size = disk.size(self._path)
        if size is not None and size > FILE_BYTES_MAX:
            raise InvalidUsers(f"it has {size} bytes; the maximum is {FILE_BYTES_MAX}")
        data = disk.read(self._path)
        if data is None:
            raise InvalidUsers("the file does not exist; `txbroker users` creates it")
        return data

    def _have_read(self, data: bytes) -> None:
        if data != self._data:
            self._use(data, parse_users(data))
            log.info("read the users of %s again", self._path)
        self._problem = ""

    def _use(self, data: bytes, users: Mapping[str, Mapping[str, ScramCredential]]) -> None:
        self._data = data
        self._credentials.replace_file(users)

    def _cannot_use(self, failure: Failure) -> None:
        problem = failure.getErrorMessage()
        if problem != self._problem:
            self._problem = problem
            log.error("the users of %s stay as they were: %s", self._path, problem)
