"""Certificates for tests, as an administrator makes them: an authority, and certificates that it has signed."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PASSWORD = "secret of a test"
NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Test"), x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Issued:
    """A certificate with its key and its chain. Each form is written into the folder when it is asked for."""

    def __init__(
        self, folder: Path, name: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, chain: Sequence[x509.Certificate]
    ) -> None:
        self._folder = folder
        self.name = name
        self.key = key
        self.chain = list(chain)
        self.certificate = chain[0]

    @property
    def der(self) -> bytes:
        content: bytes = self.certificate.public_bytes(Encoding.DER)
        return content

    def key_pem(self, password: str | None = None) -> str:
        secret = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        content: bytes = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
        return content.decode()

    def chain_pem(self) -> str:
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in self.chain)

    def pem(self, password: str | None = None) -> Path:
        """Key and chain in one file, as Kafka and ssl read it."""
        path = self._folder / f"{self.name}{'' if password is None else '.encrypted'}.pem"
        path.write_text(self.key_pem(password) + self.chain_pem())
        return path

    def key_file(self) -> Path:
        path = self._folder / f"{self.name}.key"
        path.write_text(self.key_pem())
        return path

    def chain_file(self) -> Path:
        path = self._folder / f"{self.name}.crt"
        path.write_text(self.chain_pem())
        return path

    def pkcs12(self) -> Path:
        path = self._folder / f"{self.name}.p12"
        secret = BestAvailableEncryption(PASSWORD.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, self.chain[1:], secret))
        return path

    def jks(self) -> Path:
        """Made by keytool."""
        path = self._folder / f"{self.name}.jks"
        path.unlink(missing_ok=True)
        keytool("-importkeystore", "-srckeystore", str(self.pkcs12()), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD,
                "-destkeystore", str(path), "-deststoretype", "JKS", "-deststorepass", PASSWORD)  # fmt: skip
        return path


class Authority:
    """A certificate authority, and what it issues."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key()
        subject = _named(name)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(NOW - 30 * DAY).not_valid_after(NOW + 3650 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_usage(authority=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        self.certificate = builder.sign(self._key, hashes.SHA256())

    def issue(
        self, name: str, hosts: Sequence[str] = ("localhost", "127.0.0.1"), *, days: tuple[int, int] = (-1, 30),
        subject: x509.Name | None = None, is_rsa: bool = False,
    ) -> Issued:  # fmt: skip
        """A certificate for a server and a client, valid between these days from now."""
        key = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        builder = x509.CertificateBuilder().subject_name(subject or _named(name)).issuer_name(self.certificate.subject)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(NOW + days[0] * DAY).not_valid_after(NOW + days[1] * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(authority=False), critical=True)
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(both, critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        return Issued(self.folder, name, key, [builder.sign(self._key, hashes.SHA256())])

    def text(self) -> str:
        content: bytes = self.certificate.public_bytes(Encoding.PEM)
        return content.decode()

    def pem(self) -> Path:
        path = self.folder / f"{self.name}.pem"
        path.write_text(self.text())
        return path

    def truststore(self, kind: str) -> Path:
        """Made by keytool, of the type JKS or PKCS12."""
        path = self.folder / f"{self.name}.{kind.lower()}"
        path.unlink(missing_ok=True)
        keytool("-importcert", "-noprompt", "-alias", "authority", "-file", str(self.pem()), "-keystore", str(path), "-storetype", kind,
                "-storepass", PASSWORD)  # fmt: skip
        return path


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=not authority, data_encipherment=False, key_agreement=False,
        key_cert_sign=authority, crl_sign=authority, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def keytool(*arguments: str) -> None:
    """Java's tool for stores of certificates."""
    ended = subprocess.run(["keytool", *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
