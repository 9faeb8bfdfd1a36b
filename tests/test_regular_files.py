"""Files that a configuration names: a named pipe or a device is refused, where a broker would wait for ever to open or read it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from tests.config.configs import broker_config
from txbroker.broker.oauth_tokens import _read_file
from txbroker.broker.users_file import UsersFile
from txbroker.client.client_errors import ConnectionFailed
from txbroker.client.oauth_token import TokenSource
from txbroker.cluster.tree.zookeeper_security import read_security
from txbroker.errors import ConfigError, StartError, StorageError
from txbroker.log.os_disk import OsDisk
from txbroker.regular_files import read_regular
from txbroker.security.scram_credentials import ScramCredentials
from txbroker.startup import read_startup
from txbroker.tls.settings import PEM, StoreSettings, TlsProblem
from txbroker.tls.stores import key_material, trusted_certificates

NOT_REGULAR = "it is not a regular file, but a pipe or a device"


@pytest.fixture(params=["pipe", "device"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A named pipe, and a device without an end; the link is as in mounted secrets."""
    named = tmp_path / "named"
    if request.param == "pipe":
        os.mkfifo(tmp_path / "pipe")
        named.symlink_to(tmp_path / "pipe")
    else:
        named.symlink_to("/dev/zero")
    return str(named)


def users(path: str) -> None:
    environment: Any = SimpleNamespace(disk=OsDisk(), reactor=Clock())
    UsersFile(broker_config(f"txbroker.scram.users.file={path}"), environment, ScramCredentials()).start()


def provider(path: str) -> None:
    of_kafka = "org.apache.kafka.common.config.provider.FileConfigProvider"
    read_startup([], ["config.providers=file", f"config.providers.file.class={of_kafka}", f"broker.rack=${{file:{path}:rack}}"])


READERS: dict[str, tuple[Callable[[str], object], type[Exception]]] = {
    "key store": (lambda path: key_material(StoreSettings("keystore", PEM, path, None, None), None), TlsProblem),
    "trust store": (lambda path: trusted_certificates(StoreSettings("truststore", PEM, path, None, None)), TlsProblem),
    "users": (users, StartError),
    "keys of tokens": (lambda path: _read_file(OsDisk(), path), StorageError),
    "token": (lambda path: TokenSource.of({"sasl.oauthbearer.token.endpoint.url": f"file://{path}"}).token(), ConnectionFailed),
    "JAAS file": (lambda path: read_security(broker_config(f"zookeeper.connect=zk:1\ntxbroker.zookeeper.jaas.file={path}")), ConfigError),
    "provider of values": (provider, ConfigError),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_not_a_regular_file_is_refused_at_once(reader: str, path: str) -> None:
    read, error = READERS[reader]
    with pytest.raises(error, match=NOT_REGULAR) as refused:
        read(path)
    assert path in str(refused.value)


def test_a_regular_file_is_read_up_to_the_maximum(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * (1 << 20))
    assert read_regular(str(file), 1 << 20) == file.read_bytes() == OsDisk().read(str(file))
    with file.open("ab") as more:
        more.write(b"y")
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_regular(str(file), 1 << 20)
    with pytest.raises(IsADirectoryError):
        read_regular(str(tmp_path), 1 << 20)
    with pytest.raises(FileNotFoundError):
        read_regular(str(tmp_path / "none"), 1 << 20)
