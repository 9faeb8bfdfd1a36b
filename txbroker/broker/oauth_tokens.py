"""Tokens of all listeners with OAUTHBEARER: what verifies them, and where that is read from. It needs PyJWT."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlsplit

from twisted.internet.defer import gatherResults

from txbroker.backoff import Backoff
from txbroker.broker.environment import Environment
from txbroker.broker.jwks_source import JwksSource
from txbroker.client.web_document import NoDocument, get_document
from txbroker.config.oauthbearer import OauthSettings, file_of, shown_url
from txbroker.errors import StartError
from txbroker.log.disk import Disk
from txbroker.security.jwks import JWKS_BYTES_MAX
from txbroker.security.jwt_tokens import TokenRules, TokenValidator
from txbroker.security.sasl_oauthbearer import OauthExchange
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import TlsProblem, read_settings

log = logging.getLogger("txbroker.security")

TIMEOUT_S = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class OauthTokens:
    """The sources of keys are shared by listeners with the same settings."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._sources: dict[object, JwksSource] = {}

    def exchanges(self, listener: str, settings: OauthSettings, options: Mapping[str, str]) -> Callable[[], OauthExchange]:
        """Makes the exchange of a login on a listener. `options`: of the login module, with TLS of the web server. StartError."""
        shared = (settings.url, settings.refresh_ms, settings.backoff_ms, settings.backoff_max_ms, tuple(sorted(options.items())))
        source = self._sources.get(shared)
        if source is None:
            source = self._sources[shared] = self._source(listener, settings, options)
        rules = TokenRules(settings.issuer, settings.audiences, settings.skew_s, settings.scope_claim, settings.sub_claim)
        return partial(OauthExchange, TokenValidator(source, rules, self._environment.now_ms))

    async def start(self) -> None:
        """Read the keys; ends when all were read, or could not be."""
        await gatherResults([source.start() for source in self._sources.values()])

    def stop(self) -> None:
        """Read no more keys."""
        for source in self._sources.values():
            source.stop()

    def _source(self, listener: str, settings: OauthSettings, options: Mapping[str, str]) -> JwksSource:
        environment = self._environment
        return JwksSource(
            shown_url(settings.url),
            self._reader(listener, settings.url, options),
            environment.reactor,
            environment.in_worker,
            settings.refresh_ms / 1000,
            Backoff(environment.random.random, settings.backoff_ms / 1000, settings.backoff_max_ms / 1000),
        )

    def _reader(self, listener: str, url: str, options: Mapping[str, str]) -> Callable[[], bytes]:
        path = file_of(url)
        if path is not None:
            return partial(_read_file, self._environment.disk, path)
        context = None
        if urlsplit(url).scheme == "https":
            context = _context(listener, options)
        elif urlsplit(url).hostname not in _LOOPBACK:
            log.warning("the keys that verify tokens are read from %s without TLS: who can change them on the way can log in as any user; "
                        "use https", shown_url(url))  # fmt: skip
        return partial(get_document, url, JWKS_BYTES_MAX, TIMEOUT_S, context)


def _context(listener: str, options: Mapping[str, str]) -> ssl.SSLContext:
    """TLS by the `ssl.` options of the login module, as in Kafka; StartError."""
    try:
        return client_context(read_settings(options.get))
    except TlsProblem as problem:
        raise StartError(f"the option {problem.key} of the login configuration of OAUTHBEARER (listener {listener}) "
                         f"{problem.problem}") from None  # fmt: skip


def _read_file(disk: Disk, path: str) -> bytes:
    """NoDocument, StorageError."""
    size = disk.size(path)
    if size is not None and size > JWKS_BYTES_MAX:
        raise NoDocument(f"it has {size} bytes; the maximum is {JWKS_BYTES_MAX}")
    data = disk.read(path)
    if data is None:
        raise NoDocument("the file does not exist")
    return data
