"""The delegation tokens of a cluster: read, watched and changed as Kafka's DelegationTokenManagerZk does it.

A change writes the node of a token and the node that reports it in one transaction. All tokens are read again after each new session of
the tree, because the nodes that report changes are deleted after a while, and every RELOAD_S seconds, because a broker of Kafka writes
both nodes one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.change_nodes import ChangeNodes
from txbroker.cluster.node_data import MalformedNode
from txbroker.cluster.tree.interface import (
    MULTI_OPS_MAX,
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    Refused,
    SessionExpired,
    Set,
    Tree,
    TreeError,
    WatchEvent,
)
from txbroker.cluster.tree.operations import for_admin, read_each, repeated, written
from txbroker.errors import BrokerError, ErrorCode
from txbroker.retrying import retrying, warning
from txbroker.security.token_nodes import (
    STRUCTURE,
    TOKEN_CHANGE_NAME,
    TOKEN_CHANGES,
    TOKENS,
    Token,
    decode_token,
    encode_token,
    token_path,
)

log = logging.getLogger("txbroker.security")

RELOAD_S = 5 * 60.0
RETRY_S, RETRY_S_MAX = 0.2, 10.0
ATTEMPTS_MAX = 100  # of a change; each that fails means that another broker's has succeeded
TOKEN_ID_MAX = 100  # of a change node, which another program may have written

T = TypeVar("T")
# What a token becomes; None: nothing, it is removed. BrokerError.
Change = Callable[[Token], Token | None]


class TokenStore:
    """`tokens`: those of the moment, by id."""

    def __init__(self, tree: Tree, clock: Clock, chance: Callable[[], float]) -> None:
        self.tokens: dict[str, Token] = {}
        self._tree = tree
        self._clock = clock
        self._chance = chance
        self._changes = ChangeNodes(tree, TOKEN_CHANGES, clock)
        self._problems: dict[str, str] = {}
        self._lock = DeferredLock()  # what is read must be known before anything that is read later
        self._reading: Deferred[None] | None = None
        self._read_again = False
        self._read_all = False
        self._timer: DelayedCall | None = None

    async def start(self) -> None:
        """Begin to watch, and read all tokens."""
        for path in STRUCTURE:
            with suppress(NodeExists):
                await repeated(lambda path=path: self._tree.create(path))  # type: ignore[misc]
        await self._changes.list(self._changed)
        self._changes.unread.clear()  # part of what is read next
        await self._locked(self._load)
        self._reload_later()

    def renew(self) -> None:
        """Watch in the next session of the tree, and read everything again: changes may have been missed."""
        self._read_all = True
        self._begin_reading()

    def stop(self) -> None:
        """Stop the periodic reading."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self._reading is not None:
            self._reading.cancel()

    def add(self, token: Token) -> Deferred[None]:
        """Fires when a new token counts on this broker; BrokerError."""
        return for_admin(self._locked(lambda: self._add(token)))

    def change(self, token_id: str, change: Change) -> Deferred[Token | None]:
        """Change or remove a token; fires when that counts on this broker. DELEGATION_TOKEN_NOT_FOUND, and what `change` raises."""
        return for_admin(self._locked(lambda: self._change(token_id, change)))

    def _reload_later(self) -> None:
        self._timer = self._clock.callLater(RELOAD_S, self._reload)

    def _reload(self) -> None:
        self._reload_later()
        self.renew()

    def _changed(self, _: WatchEvent) -> None:
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._read_again = True
        if self._reading is None:
            say = warning(log, "cannot read changes of delegation tokens, retrying: %s", TreeError)
            backoff = Backoff(self._chance, RETRY_S, RETRY_S_MAX)
            work = retrying(lambda: self._locked(self._read_changes), self._clock, backoff, say, final=(SessionExpired,))
            reading = self._reading = Deferred.fromCoroutine(work)
            reading.addErrback(_ended).addBoth(self._have_read)

    def _have_read(self, _: object) -> None:
        self._reading = None

    async def _read_changes(self) -> None:
        self._read_again = True
        while self._read_again:
            self._read_again = False
            await self._changes.list(self._changed)
            changed = [token_id for name in self._changes.unread if (token_id := await self._changed_id(name)) is not None]
            if self._read_all:
                self._read_all = False
                try:
                    await self._tree.sync()
                    await self._load()
                except BaseException:
                    self._read_all = True
                    raise
            else:
                await self._read(changed)
            self._changes.unread.clear()
            await self._changes.purge()  # fires the watch: the changes are listed again

    async def _changed_id(self, name: str) -> str | None:
        try:
            data = await self._changes.read(name)
            token_id = (data or b"").decode("ascii")
            if 0 < len(token_id) <= TOKEN_ID_MAX and "/" not in token_id and "\0" not in token_id and token_id not in (".", ".."):
                return token_id
            problem = "it has no id of a token"
        except NoNode:
            return None
        except (UnicodeDecodeError, Refused) as error:
            problem = str(error)
        log.error("reading all delegation tokens again, because %s cannot be read: %s", self._changes.path(name), problem)
        self._read_all = True
        return None

    async def _load(self) -> None:
        names = await self._tree.children(TOKENS)
        for gone in self.tokens.keys() - set(names):
            del self.tokens[gone]
        await self._read(names)

    async def _read(self, token_ids: Iterable[str]) -> None:
        wanted = list(dict.fromkeys(token_ids))
        for start in range(0, len(wanted), MULTI_OPS_MAX):
            part = wanted[start : start + MULTI_OPS_MAX]
            paths = [token_path(token_id) for token_id in part]
            try:
                nodes: list[object] = list(await self._tree.get_all(paths))
            except Refused:
                nodes = list(await read_each(self._tree, paths))
            for token_id, node in zip(part, nodes, strict=True):
                self._use(token_id, node)

    def _use(self, token_id: str, node: object) -> None:
        """What was read of a token; one that cannot be read does not count."""
        problem = ""
        try:
            if isinstance(node, tuple):
                self.tokens[token_id] = decode_token(node[0], token_id)
            else:
                self.tokens.pop(token_id, None)
                problem = str(node) if isinstance(node, Refused) else ""
        except MalformedNode as error:
            self.tokens.pop(token_id, None)
            problem = str(error)
        if problem and self._problems.get(token_id) != problem:
            log.error("a delegation token cannot be used until its node is repaired or deleted: %s", problem)
        if problem:
            self._problems[token_id] = problem
        else:
            self._problems.pop(token_id, None)

    # Changing

    def _locked(self, work: Callable[[], Awaitable[T]]) -> Deferred[T]:
        async def run() -> T:
            return await work()

        return self._lock.run(lambda: Deferred.fromCoroutine(run()))

    async def _add(self, token: Token) -> None:
        path, data = token_path(token.id), encode_token(token)

        async def has() -> bool:
            with suppress(NoNode):
                return (await self._tree.get(path))[0] == data
            return False

        await written(self._tree.multi([Create(path, data), _report(token.id)]), self._tree, has)
        self.tokens[token.id] = token

    async def _change(self, token_id: str, change: Change) -> Token | None:
        path = token_path(token_id)
        for _ in range(ATTEMPTS_MAX):
            try:
                before, stat = await self._tree.get(path)
            except NoNode:
                self.tokens.pop(token_id, None)
                raise BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
            after = change(decode_token(before, token_id))
            data = None if after is None else encode_token(after)

            async def has(data: bytes | None = data) -> bool:
                try:
                    return (await self._tree.get(path))[0] == data
                except NoNode:
                    return data is None

            op: Op = Delete(path, stat.version) if data is None else Set(path, data, stat.version)
            try:
                await written(self._tree.multi([op, _report(token_id)]), self._tree, has)
            except (BadVersion, NoNode):
                continue
            if after is None:
                self.tokens.pop(token_id, None)
            else:
                self.tokens[token_id] = after
            return after
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "The token is changed by other requests all the time; try again.")


def _report(token_id: str) -> Op:
    return Create(f"{TOKEN_CHANGES}/{TOKEN_CHANGE_NAME}", token_id.encode(), sequential=True)


def _ended(failure: Failure) -> None:
    failure.trap(SessionExpired, CancelledError)  # `renew` follows, or the broker stops
