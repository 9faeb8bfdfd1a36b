"""Delegation tokens (KIP-48): what is kept of each, and its node in the metadata tree, as Kafka's DelegationTokenManagerZk has it.

The password of a token, its HMAC, is never kept: it follows from the id and delegation.token.secret.key, which all brokers share.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from txbroker.client_quotas.entities import sanitized
from txbroker.cluster.node_data import MalformedNode, to_json
from txbroker.cluster.node_paths import TOKENS

TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_NAME = "token_change_"
STRUCTURE = ("/delegation_token", TOKENS, TOKEN_CHANGES)  # parents before children
USER_TYPE = "User"
TOKEN_ID_MAX = 100  # of a change node, which another program may have written
_VERSION = 3
_TIME_MAX = 2**63 - 1


class Token(NamedTuple):
    """Principals are "Type:name"; times are milliseconds since 1970. `requester`: who has asked for it, perhaps for another owner."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether it has ended."""
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def may_renew(self, principal: str) -> bool:
        """Whether a principal may renew it and end it."""
        return principal == self.owner or principal in self.renewers

    def is_of(self, principal: str) -> bool:
        """Whether a principal sees it without further rights."""
        return principal == self.requester or self.may_renew(principal)


def token_path(token_id: str) -> str:
    """The path of the node of a token."""
    return f"{TOKENS}/{token_id}"


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """The password of a token, in bytes."""
    return hmac.digest(secret, token_id.encode(), hashlib.sha512)


def token_password(secret: bytes, token_id: str) -> str:
    """The password of a token, with which clients log in by SCRAM."""
    return base64.b64encode(token_hmac(secret, token_id)).decode()


def encode_token(token: Token) -> bytes:
    """The data of the node."""
    return to_json({  # in Kafka's order
        "issueTimestamp": token.issued_ms,
        "renewers": [sanitized(each) for each in token.renewers],
        "tokenRequester": sanitized(token.requester),
        "tokenId": token.id,
        "owner": sanitized(token.owner),
        "expiryTimestamp": token.expires_ms,
        "maxTimestamp": token.max_ms,
        "version": _VERSION,
    })  # fmt: skip


def decode_token(data: bytes | None, token_id: str) -> Token:
    """The token in a node with this name; MalformedNode."""
    path = token_path(token_id)
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError):
        raise MalformedNode(f"{path} is not JSON") from None
    if not isinstance(value, dict) or value.get("version") not in (1, 2, 3):
        raise MalformedNode(f"{path} has no token of the versions 1 to 3")
    owner = _principal(path, value, "owner")
    requester = _principal(path, value, "tokenRequester") if "tokenRequester" in value else owner
    renewers = value.get("renewers", [])
    if not isinstance(renewers, list) or not all(isinstance(each, str) for each in renewers):
        raise MalformedNode(f"{path}: renewers is not a list of principals")
    if value.get("tokenId") != token_id:
        raise MalformedNode(f"{path}: tokenId is not the name of the node")
    issued_ms, max_ms, expires_ms = (_time(path, value, name) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp"))
    return Token(token_id, owner, requester, tuple(unquote_plus(each) for each in renewers), issued_ms, max_ms, expires_ms)


def decode_token_change(data: bytes | None) -> str:
    """The id of the token whose node has changed; MalformedNode."""
    token_id = (data or b"").decode("ascii", "replace")
    if not 0 < len(token_id) <= TOKEN_ID_MAX or not token_id.isascii() or "/" in token_id or "\0" in token_id or token_id in (".", ".."):
        raise MalformedNode("it has no id of a token")
    return token_id


def _time(path: str, value: dict[str, Any], name: str) -> int:
    time_ms = value.get(name)
    if not isinstance(time_ms, int) or isinstance(time_ms, bool) or not 0 <= time_ms <= _TIME_MAX:
        raise MalformedNode(f"{path}: {name} is not a number of milliseconds")
    return time_ms


def _principal(path: str, value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or ":" not in unquote_plus(text):
        raise MalformedNode(f"{path}: {name} is not a principal")
    return unquote_plus(text)
