"""The user as which this broker logs in at ZooKeeper with SASL, from a login configuration in a key or in a JAAS file of Kafka.

Kafka reads the section `Client` of the file that the JVM's flag `java.security.auth.login.config` names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from txbroker.config.jaas import InvalidJaas, LoginModule, parse_jaas, parse_jaas_file
from txbroker.config.resolve import BrokerConfig

CONFIG_KEY, FILE_KEY = "txbroker.zookeeper.jaas.config", "txbroker.zookeeper.jaas.file"
SECTION = "Client"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


class ZooKeeperLogin(NamedTuple):
    """A user of ZooKeeper, for the mechanism DIGEST-MD5."""

    user: str
    password: str


def has_zookeeper_login(config: BrokerConfig) -> bool:
    """Whether one of the keys is set."""
    return bool(config.value(CONFIG_KEY) or config.optional_text(FILE_KEY))


def zookeeper_login(config: BrokerConfig, read: Callable[[str], bytes] | None = None) -> ZooKeeperLogin | None:
    """The user, None without a login; ConfigError. `read` reads a file (OSError, ValueError); without it there is none from a file."""
    text, path = config.value(CONFIG_KEY), config.optional_text(FILE_KEY)
    key = CONFIG_KEY if text else FILE_KEY
    try:
        if text and path:
            raise InvalidJaas(f"and {FILE_KEY} are both set; remove one of them")
        if text:
            return _login(parse_jaas(str(text)))
        return _login(_from_file(path, read)) if path and read is not None else None
    except InvalidJaas as error:
        raise config.static.error((key,), f"{key} {error}") from None


def _from_file(path: str, read: Callable[[str], bytes]) -> LoginModule:
    try:
        return parse_jaas_file(read(path).decode(), SECTION)
    except OSError as error:
        raise InvalidJaas(f"is {path}, which cannot be read: {error.strerror or error}; correct the path or its permissions") from None
    except InvalidJaas as error:
        raise InvalidJaas(f"is {path}, which {error}") from None
    except ValueError:
        raise InvalidJaas(f"is {path}, which is not a text in UTF-8") from None


def _login(module: LoginModule) -> ZooKeeperLogin:
    if module.name != DIGEST_MODULE:
        raise InvalidJaas(f"has the login module {module.name[:200]}; for ZooKeeper only {DIGEST_MODULE} is supported")
    user, password = module.options.get("username"), module.options.get("password")
    if not user or not password:
        raise InvalidJaas(f'has no username and password; write `{DIGEST_MODULE} required username="USER" password="PASSWORD";`')
    return ZooKeeperLogin(user, password)
