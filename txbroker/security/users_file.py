"""A file of users with SCRAM credentials, beside those in the metadata: it needs no running broker, and has no passwords.

    alice SCRAM-SHA-256 salt=...,stored_key=...,server_key=...,iterations=4096

A line for each user and mechanism; names are percent-encoded, as in the nodes of users. Lines without text, and those that begin with #,
are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from txbroker.client_quotas.entities import decoded, sanitized
from txbroker.security.scram import InvalidCredential, ScramCredential
from txbroker.wire.scram import HASHES

FILE_BYTES_MAX = 16 << 20


class InvalidUsers(ValueError):
    """The file cannot be used; the message begins with the number of the line, and has no part of a credential."""


class Line(NamedTuple):
    """A user in the file; `number`: of the line, from 1 on."""

    number: int
    user: str
    mechanism: str
    credential: ScramCredential


def parse_users(data: bytes) -> dict[str, dict[str, ScramCredential]]:
    """The credentials by mechanism and user; InvalidUsers."""
    found: dict[str, dict[str, ScramCredential]] = {mechanism: {} for mechanism in HASHES}
    for line in lines(data):
        if line.user in found[line.mechanism]:
            raise InvalidUsers(f"line {line.number} has {line.mechanism} of the user {line.user!r} again; remove one of the lines")
        found[line.mechanism][line.user] = line.credential
    return found


def lines(data: bytes) -> Iterator[Line]:
    """The users, in their order; InvalidUsers."""
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3:
            raise InvalidUsers(f"line {number} has {len(words)} words; it must have a user, a mechanism and a credential")
        if words[1] not in HASHES:
            raise InvalidUsers(f"line {number} has the mechanism {words[1][:100]!r}; it must be {' or '.join(HASHES)}")
        try:
            credential = ScramCredential.parse(words[2])
        except InvalidCredential as error:
            raise InvalidUsers(f"line {number} has an invalid credential: {error}; set the password again") from None
        yield Line(number, decoded(words[0]) or words[0], words[1], credential)


def changed(data: bytes, user: str, credentials: Mapping[str, ScramCredential]) -> bytes:
    """The file with these credentials of a user, by mechanism, and without others of the user. Comments stay. InvalidUsers."""
    own = {line.number for line in lines(data) if line.user == user}
    kept = [line for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1) if number not in own]
    added = [f"{sanitized(user)} {mechanism} {credential.format()}" for mechanism, credential in credentials.items()]
    return "".join(f"{line}\n" for line in (*kept, *added)).encode()
