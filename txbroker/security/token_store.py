"""The delegation tokens of a cluster: read, watched and changed as Kafka's DelegationTokenManagerZk does it.

A change writes the node of a token and the node that reports it in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from twisted.internet.defer import Deferred

from txbroker.clock import Clock
from txbroker.cluster.node_data import MalformedNode
from txbroker.cluster.node_paths import TOKENS
from txbroker.cluster.tree.interface import BadVersion, Create, Delete, NodeExists, NoNode, Op, Refused, Set, Tree
from txbroker.cluster.tree.operations import for_admin, read_all, repeated, written
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.reported_nodes import NodeProblems, ReportedNodes
from txbroker.security.token_nodes import (
    STRUCTURE,
    TOKEN_CHANGE_NAME,
    TOKEN_CHANGES,
    Token,
    decode_token,
    decode_token_change,
    encode_token,
    token_path,
)

log = logging.getLogger("txbroker.security")

ATTEMPTS_MAX = 100  # of a change; each that fails means that another broker's has succeeded

# What a token becomes; None: nothing, it is removed. BrokerError.
Change = Callable[[Token], Token | None]


class TokenNotFound(BrokerError):
    """There is no such token any more."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


class TokenStore:
    """`tokens`: those of the moment, by id."""

    def __init__(self, tree: Tree, clock: Clock, chance: Callable[[], float], *, is_shared: bool) -> None:
        """`is_shared`: other brokers write to the tree, too. `chance` returns numbers from 0 to 1."""
        self.tokens: dict[str, Token] = {}
        self.problems = NodeProblems(_log_problem)
        self._tree = tree
        self._nodes = ReportedNodes(
            "delegation tokens", tree, clock, chance, {TOKEN_CHANGES: decode_token_change}, self._load, self._read, is_shared=is_shared
        )

    async def start(self) -> None:
        """Begin to watch, and read all tokens."""
        for path in STRUCTURE:
            with suppress(NodeExists):
                await repeated(lambda path=path: self._tree.create(path))  # type: ignore[misc]
        await self._nodes.start()

    def renew(self) -> None:
        """Watch in the next session of the tree, and read everything again: changes may have been missed."""
        self._nodes.renew()

    def stop(self) -> None:
        """Read no more."""
        self._nodes.stop()

    def add(self, token: Token) -> Deferred[None]:
        """Fires when a new token counts on this broker; BrokerError."""
        return for_admin(self._nodes.locked(lambda: self._add(token)))

    def change(self, token_id: str, change: Change) -> Deferred[Token | None]:
        """Change or remove a token; fires when that counts on this broker. DELEGATION_TOKEN_NOT_FOUND, and what `change` raises.

        If `change` returns the token as it was, nothing is written.
        """
        return for_admin(self._nodes.locked(lambda: self._change(token_id, change)))

    async def _load(self) -> None:
        names = set(await self._tree.children(TOKENS))
        for gone in self.tokens.keys() - names:
            del self.tokens[gone]
        self.problems.keep(names)
        await self._read(names)

    async def _read(self, token_ids: Collection[str]) -> None:
        ids = list(token_ids)
        for token_id, node in zip(ids, await read_all(self._tree, [token_path(each) for each in ids]), strict=True):
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
        self.problems.report(token_id, problem)

    # Changing

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
                data_before, stat = await self._tree.get(path)
            except NoNode:
                self.tokens.pop(token_id, None)
                raise TokenNotFound from None
            before = decode_token(data_before, token_id)
            after = change(before)
            data = None if after is None else encode_token(after)

            async def has(data: bytes | None = data) -> bool:
                try:
                    return (await self._tree.get(path))[0] == data
                except NoNode:
                    return data is None

            op: Op = Delete(path, stat.version) if data is None else Set(path, data, stat.version)
            try:
                if after != before:
                    await written(self._tree.multi([op, _report(token_id)]), self._tree, has)
            except (BadVersion, NoNode):
                continue
            if after is None:
                self.tokens.pop(token_id, None)
            else:
                self.tokens[token_id] = after
            return after
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "The token is changed by other requests all the time; try again.")


def _log_problem(token_id: str, problem: str) -> None:
    log.error("a delegation token cannot be used until its node is repaired or deleted: %s", problem)


def _report(token_id: str) -> Op:
    return Create(f"{TOKEN_CHANGES}/{TOKEN_CHANGE_NAME}", token_id.encode(), sequential=True)
