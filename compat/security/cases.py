"""The cases that every client tries on a secured broker, and the file with which a driver gets them. Standard library only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

PATIENCE_S = 30.0  # of a client, for each step
FILE_VARIABLE = "COMPAT_SECURITY"  # the environment variable that names the file
TLS, MUTUAL, EXPIRED, FUTURE, OTHER_NAME, LOGIN = "TLS", "MUTUAL", "EXPIRED", "FUTURE", "OTHER_NAME", "LOGIN"
OWN, FOREIGN, OLD = "client", "foreign", "old"  # certificates of clients
ALICE, WRITE_MISSING, READ_MISSING, GROUP_MISSING, GHOST = "alice", "no-write", "no-read", "no-group", "ghost"
PASSWORD, WRONG_PASSWORD = "right-secret", "wrong-secret"  # of every user; with OAUTHBEARER they stand for two tokens
PLAIN, SCRAM_256, SCRAM_512, OAUTH = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"


@dataclass(frozen=True)
class Case:
    """A listener of the broker, and how a client connects to it: by default as it must."""

    listener: str
    about: str
    mechanism: str = ""
    user: str = ALICE
    password: str = PASSWORD
    trusts: bool = True  # the client trusts the authority of the broker's certificate
    certificate: str = ""  # the client's own


def _login(about: str, mechanism: str = PLAIN, *, user: str = ALICE, password: str = PASSWORD) -> Case:
    return Case(LOGIN, about, mechanism, user, password)


WORKING = ("tls", "mutual_tls", "plain", "scram_256", "scram_512", "oauth")  # must work; the others must fail
CASES: Mapping[str, Case] = {
    "tls": Case(TLS, "TLS"),
    "mutual_tls": Case(MUTUAL, "TLS with a certificate of the client", certificate=OWN),
    "plain": _login("SASL_SSL with PLAIN"),
    "scram_256": _login("SASL_SSL with SCRAM-SHA-256", SCRAM_256),
    "scram_512": _login("SASL_SSL with SCRAM-SHA-512", SCRAM_512),
    "oauth": _login("SASL_SSL with OAUTHBEARER", OAUTH),
    "wrong_password": _login("a wrong password with PLAIN", password=WRONG_PASSWORD),
    "unknown_user": _login("an unknown user with PLAIN", user=GHOST),
    "wrong_password_scram": _login("a wrong password with SCRAM-SHA-512", SCRAM_512, password=WRONG_PASSWORD),
    "unknown_user_scram": _login("an unknown user with SCRAM-SHA-512", SCRAM_512, user=GHOST),
    "wrong_token": _login("a token with OAUTHBEARER that an unknown key has signed", OAUTH, password=WRONG_PASSWORD),
    "expired": Case(EXPIRED, "the broker's certificate has expired"),
    "not_yet_valid": Case(FUTURE, "the broker's certificate is not valid yet"),
    "wrong_name": Case(OTHER_NAME, "the broker's certificate is for another host"),
    "untrusted": Case(TLS, "the broker's certificate is of an authority that the client does not trust", trusts=False),
    "no_certificate": Case(MUTUAL, "the broker requires a certificate, the client has none"),
    "foreign_certificate": Case(MUTUAL, "the client's certificate is of an authority that the broker does not trust", certificate=FOREIGN),
    "old_certificate": Case(MUTUAL, "the client's certificate has expired", certificate=OLD),
    "no_write": _login("no right to write to the topic", user=WRITE_MISSING),
    "no_read": _login("no right to read the topic", user=READ_MISSING),
    "no_group": _login("no right to use the group", user=GROUP_MISSING),
}


@dataclass(frozen=True)
class Secured:
    """A case as a driver gets it. The client produces a record to the topic, and then reads a record as a member of the group.

    The files are PEM. What is not needed is empty.
    """

    name: str
    address: str
    topic: str
    group: str
    mechanism: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    token: str = ""  # instead of user and password

    @property
    def protocol(self) -> str:
        """Kafka's name of it."""
        return "SASL_SSL" if self.mechanism else "SSL"


def write(path: Path, cases: Iterable[Secured]) -> None:
    """A list of objects in JSON, one a line, that have strings without quotes only."""
    path.write_text("[\n" + ",\n".join(json.dumps(asdict(case)) for case in cases) + "\n]\n")


def read() -> list[Secured]:
    """The cases of the file that the environment names; none without one."""
    file = os.environ.get(FILE_VARIABLE)
    return [Secured(**fields) for fields in json.loads(Path(file).read_text())] if file else []
