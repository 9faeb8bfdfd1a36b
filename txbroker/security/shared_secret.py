"""A secret that all brokers of txbroker in a cluster share, in a node of its own, which Kafka ignores.

The salts of users who do not exist are made of it (`scram.py`): they must be the same at each broker and after each start, or a client
could tell these users by asking twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from txbroker.cluster.node_paths import SHARED_SECRET
from txbroker.cluster.tree.interface import NodeExists, NoNode, Refused, Tree
from txbroker.cluster.tree.operations import repeated

log = logging.getLogger("txbroker.security")

SECRET_BYTES = 32


async def shared_secret(tree: Tree, random_bytes: Callable[[int], bytes]) -> bytes:
    """The secret of the cluster; the first broker makes it. One of this process alone, with an error in the log, if the node is unusable.

    TreeError if the tree cannot be used now.
    """
    try:
        data = await _read_or_create(tree, random_bytes)
        secret = bytes.fromhex((data or b"").decode("ascii"))
        if len(secret) == SECRET_BYTES:
            return secret
        problem = f"it has {len(secret)} bytes instead of {SECRET_BYTES}; delete the node, and start all brokers again"
    except ValueError:
        problem = "it is not in hexadecimal digits; delete the node, and start all brokers again"
    except Refused as error:
        problem = str(error)
    log.error("the secret in %s cannot be used, so that clients can find out which SCRAM users exist: %s", SHARED_SECRET, problem)
    return random_bytes(SECRET_BYTES)


async def _read_or_create(tree: Tree, random_bytes: Callable[[int], bytes]) -> bytes | None:
    with suppress(NoNode):
        return (await repeated(lambda: tree.get(SHARED_SECRET)))[0]
    with suppress(NodeExists):
        await repeated(lambda: tree.create(SHARED_SECRET, random_bytes(SECRET_BYTES).hex().encode()))
    return (await repeated(lambda: tree.get(SHARED_SECRET)))[0]
