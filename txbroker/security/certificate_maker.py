"""A certificate authority, and the certificates that it signs: with the package `cryptography`, of the extra `security`."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from txbroker.console.failures import CommandFailed

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise CommandFailed("certificates are made with the package cryptography: pip install 'txbroker[security]'") from None

AUTHORITY_DAYS = 3650
# Clocks of clients that are late accept a new certificate.
_BACKDATED = timedelta(hours=1)
_COMMON_NAME_MAX = 64


class Pair(NamedTuple):
    """A private key and its certificate, in PEM."""

    key: str
    certificate: str


class Renewed(NamedTuple):
    """`pem`: key and certificate; `ends`: when the certificate ends."""

    pem: str
    ends: datetime


class Authority:
    """Signs certificates that are valid from now on."""

    def __init__(self, key: Any, certificate: x509.Certificate, now: datetime) -> None:
        self._key = key
        self._certificate = certificate
        self._now = now

    @classmethod
    def new(cls, name: str, now: datetime, days: int) -> Authority:
        """One that ends after `days`. `name`: of its certificate, the same for no other authority."""
        now = now.replace(microsecond=0)  # certificates have whole seconds
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        builder = _builder(key.public_key(), subject, subject, now, now + timedelta(days=days), authority=True)
        return cls(key, builder.sign(key, hashes.SHA256()), now)

    @classmethod
    def load(cls, pair: Pair, now: datetime) -> Authority:
        """CommandFailed if key and certificate cannot be used, or the certificate has ended."""
        now = now.replace(microsecond=0)
        try:
            signer = serialization.load_pem_private_key(pair.key.encode(), None)
            certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        except (ValueError, TypeError) as error:
            raise CommandFailed(f"the authority's key or certificate cannot be read: {error}") from None
        if signer.public_key() != certificate.public_key():
            raise CommandFailed("the authority's key does not belong to its certificate")
        if certificate.not_valid_after_utc <= now:
            raise CommandFailed(f"the authority's certificate has ended on {certificate.not_valid_after_utc:%Y-%m-%d}: make another "
                                "authority with `txbroker secure init` in another directory, and replace it as docs/security.md says")
        return cls(signer, certificate, now)

    @property
    def pair(self) -> Pair:
        """Its own key and certificate."""
        return Pair(_key_text(self._key), _text(self._certificate))

    def issue(self, hosts: Sequence[str], days: int) -> Pair:
        """A certificate of a broker or a client with these names, the first of which is also the name of its subject."""
        name = hosts[0] if len(hosts[0]) <= _COMMON_NAME_MAX else "broker"
        return self._issue(_named(name), x509.SubjectAlternativeName(list(map(_host, hosts))), days)[0]

    def renew(self, pem: str, days: int) -> Renewed:
        """Another key and certificate with the names of this one; CommandFailed. It ends with the authority at the latest."""
        try:
            old = x509.load_pem_x509_certificates(pem.encode())[0]
            if old.issuer != self._certificate.subject:
                raise InvalidSignature
            old.verify_directly_issued_by(self._certificate)
            names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except InvalidSignature:
            raise CommandFailed("its certificate was not signed by ca.pem of this directory") from None
        except (ValueError, TypeError, x509.ExtensionNotFound) as error:
            raise CommandFailed(f"its certificate cannot be renewed: {error}") from None
        pair, ends = self._issue(old.subject, names, days)
        return Renewed(pair.key + pair.certificate, ends)

    def _issue(self, subject: x509.Name, names: x509.SubjectAlternativeName, days: int) -> tuple[Pair, datetime]:
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(self._now + timedelta(days=days), self._certificate.not_valid_after_utc)
        builder = _builder(key.public_key(), subject, self._certificate.subject, self._now, ends, authority=False)
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension in (both, issuer, names):
            builder = builder.add_extension(extension, critical=False)
        return Pair(_key_text(key), _text(builder.sign(self._key, hashes.SHA256()))), ends


def _builder(
    public: Any, subject: x509.Name, issuer: x509.Name, start: datetime, end: datetime, *, authority: bool
) -> x509.CertificateBuilder:
    """What all certificates have. Python 3.13 refuses a chain without these extensions (VERIFY_X509_STRICT)."""
    usage = x509.KeyUsage(
        digital_signature=not authority, content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        key_cert_sign=authority, crl_sign=authority, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start - _BACKDATED).not_valid_after(end)
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_text(key: Any) -> str:
    text: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return text.decode()


def _text(certificate: x509.Certificate) -> str:
    text: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return text.decode()
