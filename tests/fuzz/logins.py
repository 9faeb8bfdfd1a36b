"""Frames on a listener with SASL in each state of a connection, and requests for ACLs; `inprocess.py` has the checks.

No input contains a password, so that the principal of a connection must stay what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.fuzz import frames
from tests.fuzz.frames import Pick
from tests.fuzz.inprocess import Bug
from tests.security.in_process import SaslBroker
from txbroker.security.principals import ANONYMOUS
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.create_acls import CreateAclsRequest
from txbroker.wire.messages.delete_acls import DeleteAclsRequest
from txbroker.wire.messages.describe_acls import DescribeAclsRequest
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest
from txbroker.wire.schema import Request

SCRAM = "SCRAM-SHA-256"
_SCRAM_KEY = f"listener.name.sasl_plaintext.{SCRAM.lower()}.sasl.jaas.config"
OVERRIDES = (
    f"sasl.enabled.mechanisms=PLAIN,{SCRAM}", f"{_SCRAM_KEY}=org.apache.kafka.common.security.scram.ScramLoginModule required;",
)  # fmt: skip
LOGIN = (SaslHandshakeRequest, SaslAuthenticateRequest, ApiVersionsRequest)
ACLS = (DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest)
MESSAGES = (
    b"\0alice\0wrong", b"\0\0", b"root\0alice\0wrong", b"n,,n=alice,r=nonce", b"n,a=bob,n=alice,r=nonce", b"y,,n=alice,r=nonce",
    b"c=biws,r=nonce,p=AAAA", b"n,,n=a=2Cb=3D,r=x,tokenauth=true", b"\xff" * 40, b"n,a=alice,\1auth=Bearer x.y.z\1\1", b"",
)  # fmt: skip
# The user who has logged in before, and what it has sent since. The last two states are those of a client that logs in again.
STATES: tuple[tuple[str, tuple[tuple[Request, int], ...]], ...] = (
    ("", ()),
    ("", ((ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),)),
    ("", ((SaslHandshakeRequest(mechanism="PLAIN"), 1),)),
    ("", ((SaslHandshakeRequest(mechanism="PLAIN"), 0),)),
    ("", ((SaslHandshakeRequest(mechanism=SCRAM), 1),)),
    ("", ((SaslHandshakeRequest(mechanism=SCRAM), 0),)),
    ("", ((SaslHandshakeRequest(mechanism=SCRAM), 1), (SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce"), 2))),
    ("admin", ()),
    ("eve", ()),
    ("eve", ((SaslHandshakeRequest(mechanism="PLAIN"), 1),)),
    ("admin", ((SaslHandshakeRequest(mechanism="PLAIN"), 1),)),
)


def new_broker() -> SaslBroker:
    """A broker with both mechanisms."""
    return SaslBroker(*OVERRIDES)


def run(broker: SaslBroker, pick: Pick) -> None:
    """Some frames in a state that `pick` selects. Raises Bug."""
    broker.user, before = frames.one_of(pick, STATES)
    sent = [broker.frame(request, version)[2] for request, version in before]
    broker.send([*sent, *(_frame(broker, number, pick) for number in range(1 + pick(4)))], 0.1)
    principal = broker.last.session.principal
    if principal != (f"User:{broker.user}" if broker.user else ANONYMOUS):
        raise Bug(f"a connection of {broker.user or 'a client without a login'} is one of {principal}")


def _frame(broker: SaslBroker, number: int, pick: Pick) -> bytes:
    how = pick(8)
    if how == 0:  # without a header, as after SaslHandshake v0
        message = frames.one_of(pick, MESSAGES)
        data = len(message).to_bytes(4, "big") + message
    elif how in (1, 2):
        message = frames.one_of(pick, MESSAGES)
        data = broker.frame(SaslAuthenticateRequest(auth_bytes=message), pick(3))[2]
    else:
        classes = ACLS if how < 5 else LOGIN
        cls = frames.one_of(pick, classes)
        version = cls.versions.low + pick(cls.versions.high - cls.versions.low + 1)
        if how == 7:
            cls, version = broker.served.choose(pick)
        data = frames.request_frame(cls, version, number, pick)
    return frames.mutated_frame(data, pick) if pick(2) else data


def seeds(random: Random) -> Iterator[bytes]:
    """Inputs for a fuzzer."""
    for state in range(len(STATES)):
        for how in range(8):
            yield bytes([state, 0, how]) + random.randbytes(60)
