"""What the broker reads from an X.509 certificate: subject, names of hosts, validity. Its signature is OpenSSL's matter."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from txbroker.tls import der
from txbroker.tls.der import Element, Malformed

# Java's X500Principal.getName(): the attribute types of RFC 2253. All others are printed by number, with a hexadecimal value.
_SHORT_NAMES = {
    "2.5.4.3": "CN", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.6": "C", "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
_STRINGS = {der.UTF8, der.PRINTABLE, der.T61, der.IA5, der.GENERAL, der.BMP}
_ESCAPED = re.compile(r'[,=+<>#;"\\]')
_BLANKS = " \r"
_SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
_EXTENSIONS = 0xA3


class Certificate(NamedTuple):
    """`subject`: the distinguished name as Java prints it (RFC 2253); `name` and `issuer`: that and the issuer's in DER.

    `alternative_names`: each in DER. Dates in ms since 1970.
    """

    subject: str
    name: bytes
    issuer: bytes
    alternative_names: frozenset[bytes]
    not_before_ms: int
    not_after_ms: int


def read_certificate(data: bytes) -> Certificate:
    """Read a certificate in DER; Malformed."""
    try:
        signed = next(der.only(data, der.SEQUENCE).children())
        fields = list(signed.children())
        if fields[0].tag == 0xA0:  # the version, which may be missing
            del fields[0]
        _, _, issuer, validity, subject, _, *rest = fields
        not_before, not_after = (_time_ms(element) for element in validity.children())
        return Certificate(
            distinguished_name(subject), subject.whole, issuer.whole, _alternative_names(rest), not_before, not_after
        )
    except (IndexError, StopIteration, ValueError) as error:
        raise Malformed(f"this is not a certificate: {error}") from None


def distinguished_name(name: Element) -> str:
    """A name as Java's `X500Principal.getName()` prints it: the last part first."""
    parts = ["+".join(_attribute(attribute) for attribute in part.children()) for part in name.children()]
    return ",".join(reversed(parts))


def _attribute(attribute: Element) -> str:
    kind, value = attribute.children()
    number = der.oid_text(kind.content)
    if number not in _SHORT_NAMES or value.tag not in _STRINGS:
        return f"{_SHORT_NAMES.get(number, number)}=#{value.whole.hex()}"
    # Java 17 decodes strings of all these types as UTF-8, whatever their encoding is.
    return f"{_SHORT_NAMES[number]}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = _ESCAPED.sub(r"\\\g<0>", text).replace("\0", "\\00")
    stripped = escaped.strip(_BLANKS)
    if not stripped:
        return "".join(f"\\{blank}" for blank in escaped)
    start = escaped.index(stripped)
    before, after = escaped[:start], escaped[start + len(stripped) :]
    return "".join(f"\\{blank}" for blank in before) + stripped + "".join(f"\\{blank}" for blank in after)


def _alternative_names(rest: list[Element]) -> frozenset[bytes]:
    for field in rest:
        if field.tag == _EXTENSIONS:
            for extension in next(field.children()).children():
                kind, *_, value = extension.children()
                if der.oid_text(kind.content) == _SUBJECT_ALTERNATIVE_NAME:
                    return frozenset(name.whole for name in der.only(value.content, der.SEQUENCE).children())
    return frozenset()


def _time_ms(element: Element) -> int:
    text = element.content.decode("ascii")
    if element.tag == der.UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text  # RFC 5280, 4.1.2.5.1
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()) * 1000
