"""How a broker secures its connection to ZooKeeper: TLS (the keys `zookeeper.ssl.*`), and a login by SASL, or a certificate.

The stores are those of listeners (`tls/stores.py`). As in ZooKeeper's client, the password of the key store is that of its key, too, and a
store without a type has the one that its name ends with.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from txbroker.config.resolve import BrokerConfig
from txbroker.config.zookeeper_login import CONFIG_KEY, FILE_KEY, ZooKeeperLogin, zookeeper_login
from txbroker.errors import StartError
from txbroker.tls import files
from txbroker.tls.cipher_suites import CipherSuites
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import IDENTIFICATION_KEY, PEM, StoreSettings, TlsProblem, TlsSettings, read_settings

PREFIX = "zookeeper."
MECHANISM = "DIGEST-MD5"
_KEYS = re.compile(r"(?<![\w.])(?=ssl\.)")
_STORES = {
    "keystore": ("zookeeper.ssl.keystore.location", "zookeeper.ssl.keystore.type", "zookeeper.ssl.keystore.password"),
    "truststore": ("zookeeper.ssl.truststore.location", "zookeeper.ssl.truststore.type", "zookeeper.ssl.truststore.password"),
}
_ENDINGS = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}


class ZooKeeperSecurity(NamedTuple):
    """`tls`: None without TLS; `login`: None without SASL. It can be sent to other processes: files are opened by `context`."""

    tls: TlsSettings | None = None
    login: ZooKeeperLogin | None = None

    @property
    def authenticates(self) -> bool:
        """Whether ZooKeeper knows this broker by a name."""
        return self.login is not None or (self.tls is not None and self.tls.keystore is not None)

    def context(self) -> ssl.SSLContext | None:
        """For TLS, with the stores; StartError if one of them cannot be used."""
        try:
            return None if self.tls is None else client_context(self.tls)
        except TlsProblem as problem:
            raise StartError(_named(problem)) from None

    def sasl_options(self) -> dict[str, str] | None:
        """For kazoo; None without a login. StartError if what it needs is not installed."""
        if self.login is None:
            return None
        if find_spec("puresasl") is None:
            raise StartError(f"{CONFIG_KEY} or {FILE_KEY} is set, but the package pure-sasl is not installed: install txbroker[security]")
        return {"mechanism": MECHANISM, "username": self.login.user, "password": self.login.password}


def read_security(config: BrokerConfig) -> ZooKeeperSecurity:
    """What the keys say, and a JAAS file, without the stores of certificates; ConfigError."""
    return ZooKeeperSecurity(_tls(config), zookeeper_login(config, files.read))


def of_json(fields: Any) -> ZooKeeperSecurity:
    """What `json.dumps` has made a list of."""
    tls, login = fields
    return ZooKeeperSecurity(None if tls is None else _tls_of_json(tls), None if login is None else ZooKeeperLogin(*login))


def _tls_of_json(fields: Any) -> TlsSettings:
    keystore, truststore, password, protocols, suites, *rest = fields
    return TlsSettings(
        None if keystore is None else StoreSettings(*keystore), None if truststore is None else StoreSettings(*truststore), password,
        tuple(protocols), None if suites is None else CipherSuites(*suites), *rest,
    )  # fmt: skip


def _tls(config: BrokerConfig) -> TlsSettings | None:
    if not config.boolean("zookeeper.ssl.client.enable"):
        return None
    password = _secret(config, "zookeeper.ssl.keystore.password")
    enabled = config.list("zookeeper.ssl.enabled.protocols") or (config.text("zookeeper.ssl.protocol"),)
    identification = config.optional_text("zookeeper.ssl.endpoint.identification.algorithm") or ""
    values: Mapping[str, str] = {
        "ssl.enabled.protocols": ",".join(_protocols(enabled)),
        "ssl.cipher.suites": ",".join(config.list("zookeeper.ssl.cipher.suites")),
        IDENTIFICATION_KEY: "https" if identification.lower() == "https" else "",  # as Kafka, which takes any other text for none
    }
    try:
        settings = read_settings(values.get)
        return settings._replace(
            keystore=_store(config, "keystore"), truststore=_store(config, "truststore"), key_password=password
        )
    except TlsProblem as problem:
        other = ("zookeeper.ssl.protocol",) if problem.key == "ssl.enabled.protocols" else ()
        raise config.static.error((PREFIX + problem.key, *other), _named(problem)) from None


def _protocols(names: Sequence[str]) -> list[str]:
    """The versions of TLS; Java's name TLS is both."""
    return [each for name in names for each in (("TLSv1.2", "TLSv1.3") if name == "TLS" else (name,))]


def _store(config: BrokerConfig, name: str) -> StoreSettings | None:
    location_key, type_key, password_key = _STORES[name]
    location = config.optional_text(location_key)
    if location is None:
        return None
    kind = (config.optional_text(type_key) or _kind_of(location)).strip().upper()
    if kind not in (PEM, *_ENDINGS.values()):
        raise TlsProblem(type_key.removeprefix(PREFIX), f"is {kind}; it must be JKS, PKCS12 or PEM")
    return StoreSettings(name, kind, location, None if kind == PEM else _secret(config, password_key), None)


def _kind_of(location: str) -> str:
    return next((kind for ending, kind in _ENDINGS.items() if location.lower().endswith(ending)), PEM)


def _secret(config: BrokerConfig, key: str) -> str | None:
    value = config.value(key)
    return str(value) if value else None


def _named(problem: TlsProblem) -> str:
    """The problem with the keys of ZooKeeper."""
    return _KEYS.sub(PREFIX, str(problem).replace("ssl.key.password", "ssl.keystore.password"))
