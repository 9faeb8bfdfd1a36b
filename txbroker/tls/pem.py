"""Blocks of PEM (RFC 7468) in a file or in the value of a key, where line breaks may be blanks (KIP-651)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+?)-----(.*?)-----END \1-----", re.DOTALL)
_LINE = 64
CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_KEY = "PRIVATE KEY"


class Block(NamedTuple):
    """`label` is the text after BEGIN; `headers` are the lines before the content of a key that is encrypted in an old form."""

    label: str
    headers: tuple[str, ...]
    content: bytes

    @property
    def is_key(self) -> bool:
        """Whether it is a private key, encrypted or not."""
        return self.label.endswith(_KEY)

    def text(self) -> str:
        """The block as a file has it."""
        encoded = base64.b64encode(self.content).decode()
        lines = [encoded[start : start + _LINE] for start in range(0, len(encoded), _LINE)]
        headers = [*self.headers, ""] if self.headers else []
        return "\n".join([f"-----BEGIN {self.label}-----", *headers, *lines, f"-----END {self.label}-----", ""])


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a text; what is between them is ignored. ValueError for content that is not base64."""
    for label, body in _BLOCK.findall(text):
        lines = [line.strip() for line in body.strip().splitlines()]
        headers = tuple(line for line in lines if ":" in line)
        encoded = "".join("".join(line for line in lines if ":" not in line).split())
        try:
            yield Block(label, headers, base64.b64decode(encoded, validate=True))
        except binascii.Error:
            raise ValueError(f"the block {label} is not base64") from None
