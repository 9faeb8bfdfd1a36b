"""TLS to ZooKeeper: the keys `zookeeper.ssl.*` as a context of Python's ssl module.

The files are PEM, which Kafka can read, too. Java's own formats need Java to be read, except for PKCS12; both are refused with the commands
that convert them.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from txbroker.errors import StartError

_JKS, _PKCS12 = b"\xfe\xed\xfe\xed", b"\x30\x82"
_TO_PEM = "openssl pkcs12 -in {source} -out store.pem -nodes"
_TO_PKCS12 = "keytool -importkeystore -srckeystore {source} -destkeystore store.p12 -deststoretype PKCS12"


class TlsSettings(NamedTuple):
    """The values of the keys. Without `truststore` the certificates of the system are trusted; `keystore` has a key and its certificate."""

    truststore: str | None
    keystore: str | None
    key_password: str | None
    verifies_host_name: bool

    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or 1.3, with these files; StartError if one of them cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verifies_host_name
        if self.truststore is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            try:
                context.load_verify_locations(self.truststore)
            except (OSError, ValueError) as error:
                raise _unusable("zookeeper.ssl.truststore.location", self.truststore, "certificates", error) from None
        if self.keystore is not None:
            try:
                # The function is called only if the key is encrypted; without it OpenSSL would ask at the terminal.
                context.load_cert_chain(self.keystore, password=lambda: self.key_password or "")
            except (OSError, ValueError) as error:
                raise _unusable("zookeeper.ssl.keystore.location", self.keystore, "a private key and its certificate", error) from None
        return context


def _unusable(key: str, path: str, contents: str, error: Exception) -> StartError:
    """Says what to do, for the most frequent mistakes too: ssl's own messages do not."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return StartError(f"{key}: {path} cannot be read: {error.strerror}; correct the path or its permissions")
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError:
        start = b""
    if start == _JKS:
        steps = f"{_TO_PKCS12.format(source=path)}` and `{_TO_PEM.format(source='store.p12')}"
        return StartError(f"{key}: {path} is a Java key store, which txbroker cannot read: convert it to PEM with `{steps}`")
    if start.startswith(_PKCS12):
        return StartError(f"{key}: {path} is not PEM but PKCS12: convert it with `{_TO_PEM.format(source=path)}`")
    return StartError(f"{key}: {path} does not have {contents} in PEM form, or its password is wrong ({error})")
