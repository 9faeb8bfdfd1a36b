"""OAUTHBEARER of a listener: where the keys come from that verify tokens, and what a token must have.

These keys are read from the broker's own sources only, never from the configuration in the metadata: what can be altered at run time must
not open files or URLs (CVE-2025-27817).
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from txbroker.config.resolve import BrokerConfig, ListenerConfig

OAUTHBEARER = "OAUTHBEARER"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_PACKAGES = ("org.apache.kafka.common.security.oauthbearer.", "org.apache.kafka.common.security.oauthbearer.secured.")
# Classes of Kafka that do what this broker does; the second package is that of releases before 4.0.
VALIDATOR_HANDLERS = tuple(f"{package}OAuthBearerValidatorCallbackHandler" for package in _PACKAGES)
LOGIN_HANDLERS = tuple(f"{package}OAuthBearerLoginCallbackHandler" for package in _PACKAGES)

JWKS_KEY = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_KEY = "sasl.oauthbearer.token.endpoint.url"
_FILE = "file"
_WEB = ("http", "https")


class InvalidUrl(ValueError):
    """The message follows the name of the key."""


class OauthSettings(NamedTuple):
    """`url`: of the keys (JWKS). Claims without an expected value are not checked, but for `aud` (`security/jwt_tokens.py`)."""

    url: str
    issuer: str | None
    audiences: tuple[str, ...]
    skew_s: int
    scope_claim: str
    sub_claim: str
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


def oauth_settings(config: BrokerConfig, values: ListenerConfig, listener: str) -> OauthSettings:
    """Of the mechanism on a listener, which `values` belongs to; ConfigError."""
    names = (values.prefix + JWKS_KEY, JWKS_KEY)
    url = values.optional_text(JWKS_KEY)
    if not url:
        raise config.static.error(
            names,
            f"{JWKS_KEY} is not set, so that no token could be verified on listener {listener}: set it to the file: or https: URL of the "
            "keys (JWKS) of your identity provider. Unsecured tokens, Kafka's default, are not supported",
        )
    try:
        file_of(url)
    except InvalidUrl as error:
        raise config.static.error(names, f"{JWKS_KEY} {error}") from None
    return OauthSettings(
        url,
        values.optional_text("sasl.oauthbearer.expected.issuer") or None,
        values.list("sasl.oauthbearer.expected.audience"),
        values.int("sasl.oauthbearer.clock.skew.seconds"),
        values.text("sasl.oauthbearer.scope.claim.name"),
        values.text("sasl.oauthbearer.sub.claim.name"),
        values.int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        values.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        values.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )


def file_of(url: str) -> str | None:
    """The path of a file: URL; None for one of http: or https:. InvalidUrl for any other one."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidUrl(f"is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidUrl("has a user or a password in its URL; remove them")
    if parts.scheme in _WEB and host:
        return None
    path = unquote(parts.path)
    if parts.scheme == _FILE and host in (None, "", "localhost") and path.startswith("/") and "\0" not in path:
        return path
    raise InvalidUrl("must be an http: or https: URL with a host, or a file: URL with an absolute path")


def token_file(url: str | None) -> str:
    """The file with the token of a client, from sasl.oauthbearer.token.endpoint.url; InvalidUrl."""
    if not url:
        raise InvalidUrl("is not set; set it to the file: URL of a file with the token")
    path = file_of(url)
    if path is None:
        raise InvalidUrl("is a URL of the web; only a file: URL is supported here: let another program write the token into a file")
    return path


def shown_url(url: str) -> str:
    """A URL for the log: without what follows its path, which may be secret."""
    return url.strip().partition("?")[0].partition("#")[0]
