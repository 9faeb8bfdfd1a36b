"""The names of certificates are those that Java prints: the expected texts are from Java 17's X500Principal.getName()."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from tests.support.certificates import DAY, NOW, Authority
from txbroker.tls.certificates import read_certificate
from txbroker.tls.der import Malformed

N = NameOID
IA5, BMP, T61, UNIVERSAL, VISIBLE = (
    _ASN1Type.IA5String, _ASN1Type.BMPString, _ASN1Type.T61String, _ASN1Type.UniversalString, _ASN1Type.VisibleString,
)  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([[(N.COUNTRY_NAME, "DE")], [(N.ORGANIZATION_NAME, 'Müller, Söhne; "x" <y> #1 = \\ + /')],
          [(N.ORGANIZATIONAL_UNIT_NAME, "a"), (N.COMMON_NAME, "b")]],
         'CN=b+OU=a,O=Müller\\, Söhne\\; \\"x\\" \\<y\\> \\#1 \\= \\\\ \\+ /,C=DE'),
        ([[(N.EMAIL_ADDRESS, "a@b.c", IA5)], [(N.SERIAL_NUMBER, "123")], [(N.GIVEN_NAME, "G")], [(N.SURNAME, "S")], [(N.TITLE, "T")],
          [(N.COMMON_NAME, "#first")]],
         "CN=\\#first,2.5.4.12=#0c0154,2.5.4.4=#0c0153,2.5.4.42=#0c0147,2.5.4.5=#1303313233,1.2.840.113549.1.9.1=#16056140622e63"),
        ([[(N.COMMON_NAME, "  outer blanks  ")], [(N.STREET_ADDRESS, "s 1")], [(N.DOMAIN_COMPONENT, "net", IA5)], [(N.USER_ID, "u")]],
         "UID=u,DC=net,STREET=s 1,CN=\\ \\ outer blanks\\ \\ "),
        ([[(N.COMMON_NAME, " ")]], "CN=\\ "),
        ([[(N.COMMON_NAME, "bmp ü", BMP)], [(N.LOCALITY_NAME, "t61", T61)], [(N.STATE_OR_PROVINCE_NAME, "tab\there \x7f")]],
         "ST=tab\there \x7f,L=t61,CN=\\00b\\00m\\00p\\00 \\00\ufffd"),
        ([[(N.COMMON_NAME, "univ", UNIVERSAL)]], "CN=#1c10000000750000006e0000006900000076"),
        ([[(N.COMMON_NAME, "vis", VISIBLE)]], "CN=#1a03766973"),
        ([[(N.COMMON_NAME, "€ 日本 😀")]], "CN=€ 日本 😀"),
        ([[(N.COMMON_NAME, "nul\0x\r")]], "CN=nul\\00x\\\r"),
    ],
)  # fmt: skip
def test_the_subject_is_printed_as_by_java(tmp_path: Path, parts: list[list[tuple[object, ...]]], expected: str) -> None:
    subject = Name([RelativeDistinguishedName([NameAttribute(*attribute) for attribute in part]) for part in parts])
    assert read_certificate(Authority(tmp_path).issue("odd", subject=subject).der).subject == expected


def test_dates_issuer_and_alternative_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one", ["a.example", "127.0.0.1"], days=(-3, 9)), authority.issue("other", ["127.0.0.1"])
    read = read_certificate(one.der)
    assert read.not_before_ms == (NOW - 3 * DAY).timestamp() * 1000
    assert read.not_after_ms == (NOW + 9 * DAY).timestamp() * 1000
    assert read.issuer == read_certificate(other.der).issuer != read.name
    assert read.alternative_names > read_certificate(other.der).alternative_names
    assert read_certificate(authority.issue("none", []).der).alternative_names == frozenset()


def test_damaged_certificates_are_refused(tmp_path: Path) -> None:
    whole = Authority(tmp_path).issue("a").der
    for size in range(0, len(whole), 7):
        with pytest.raises(Malformed):
            read_certificate(whole[:size])
    for position in range(200):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        with contextlib.suppress(Malformed):
            read_certificate(bytes(damaged))
