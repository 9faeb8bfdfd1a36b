"""Connections of this project's own client beside those of kafka-python: they find the reasons that the library does not report."""

from __future__ import annotations

import os
from collections.abc import Mapping

from txbroker.cli.full_disks import full_disk
from txbroker.client.advertised import NO_BROKERS, TRIED_MAX, brokers_in, problems
from txbroker.client.blocking_connection import connect_to_any
from txbroker.client.client_errors import AdvertisedUnreachable, ClientError, LoginRefused, NoBroker
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import ClientSecurity, Unsupported
from txbroker.config.properties import parse_properties
from txbroker.console.addresses import addresses
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.console.input_files import read_bytes
from txbroker.errors import ConfigError
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import TlsProblem

SETTINGS = ClientSettings("txbroker", connect_timeout_s=4.0, request_timeout_s=5.0)
# kafka-python's own names of what Java's clients have in stores.
_LIBRARY_TLS = ("ssl.cafile", "ssl.certfile", "ssl.keyfile", "ssl.password", "ssl.crlfile", "ssl.ciphers", "ssl.check.hostname")


def read_properties(path: str | None) -> dict[str, str]:
    """The properties in a client's configuration file; none without a file. CommandFailed."""
    if path is None:
        return {}
    try:
        return {key: found.text for key, found in parse_properties(read_bytes(path), path, os.environ).items()}
    except ConfigError as error:
        raise CommandFailed(str(error)) from error


def has_library_tls(properties: Mapping[str, str]) -> bool:
    """Whether TLS is set by names of kafka-python, which only its clients read."""
    return any(properties.get(key.replace(".", mark)) for key in _LIBRARY_TLS for mark in "._")


def security_of(properties: Mapping[str, str]) -> ClientSecurity | None:
    """TLS and SASL of a command that has only an own client; BadUsage."""
    if has_library_tls(properties):
        raise BadUsage(f"this command reads the keys of Java's clients: set ssl.truststore.location instead of {_LIBRARY_TLS[0]}")
    try:
        return ClientSecurity.of(properties)
    except Unsupported as problem:
        raise BadUsage(str(problem)) from None


def checked_security(path: str | None) -> ClientSecurity | None:
    """TLS and SASL by a file of properties, whose certificates can be read; BadUsage, CommandFailed."""
    security = security_of(read_properties(path))
    if security is not None and security.tls is not None:
        try:
            client_context(security.tls)
        except TlsProblem as problem:
            raise BadUsage(str(problem)) from None
    return security


def own_settings(properties: Mapping[str, str]) -> ClientSettings | None:
    """The settings of an own client with a client's properties; None if they have something that only kafka-python supports."""
    try:
        security = ClientSecurity.of(properties)
    except Unsupported:
        return None
    if security is not None and ((security.tls is not None and has_library_tls(properties)) or "sasl.plain.username" in properties):
        return None
    return SETTINGS._replace(security=security)


def check(servers: str, settings: ClientSettings | None) -> None:
    """CommandFailed if no broker can be used: by its advertised address, its certificate or the user. The library would retry for long."""
    if settings is None:
        return
    try:
        connect_to_any(addresses(servers), settings).close()
    except AdvertisedUnreachable as wrong:
        raise CommandFailed(str(wrong)) from None
    except LoginRefused as refused:
        raise CommandFailed(f"{refused}; correct the user in the properties of the client") from None
    except NoBroker as failed:
        if settings.security is not None:
            raise CommandFailed(str(failed)) from None
    except ClientError:
        pass  # the library reports what is not a broker


def unreachable(servers: str, settings: ClientSettings | None) -> list[str]:
    """What is wrong with the addresses of brokers that cannot be reached."""
    if settings is None:
        return []
    try:
        with connect_to_any(addresses(servers), settings) as connection:
            brokers = brokers_in(connection.call(NO_BROKERS))[:TRIED_MAX]
            return list(map(str, problems(brokers, connection.try_address)))
    except ClientError:
        return []


def full_disk_of(servers: str, properties: Mapping[str, str]) -> str | None:
    """A sentence that names the full log directories of a broker; None if none is full, or it is not known."""
    settings = own_settings(properties)
    return None if settings is None else full_disk(addresses(servers), settings)
