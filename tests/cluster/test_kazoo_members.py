"""The members of kazoo that are no part of its interface, and that `kazoo_session.py` needs. setup.cfg has the versions that have them."""

from __future__ import annotations

import inspect
import re
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

from tests.support.cache import CHECKOUT
from txbroker.cluster.tree import kazoo_session

# Each private member that is used or replaced, and its parameters.
CLIENT = {"_call": ["request", "async_object"], "_session_callback": ["state"]}
CLIENT_ATTRIBUTES = {"_connection": ConnectionHandler, "_session_timeout": (int, float), "_state": str, "_stopped": object}
CONNECTION = {
    "_connect": ["host", "hostip", "port"], "_invoke": ["timeout", "request", "xid"], "_send_ping": ["connect_timeout"],
    "stop": ["timeout"], "_authenticate_with_sasl": ["host", "timeout"],
}  # fmt: skip


def parameters(owner: type, name: str) -> list[str]:
    return list(inspect.signature(getattr(owner, name)).parameters)[1:]


@pytest.mark.parametrize(("owner", "members"), [(KazooClient, CLIENT), (ConnectionHandler, CONNECTION)])
def test_the_private_methods_have_these_parameters(owner: type, members: dict[str, list[str]]) -> None:
    assert {name: parameters(owner, name) for name in members} == members


def test_the_private_attributes_have_these_types() -> None:
    client: Any = KazooClient("127.0.0.1:1")
    for name, kind in CLIENT_ATTRIBUTES.items():
        assert isinstance(getattr(client, name), kind), name
    client.close()


def test_no_other_private_member_is_used() -> None:
    """Those of the session's own classes are assigned in them."""
    text = Path(kazoo_session.__file__).read_text()
    own = set(re.findall(r"self\.(_[a-z]\w*)(?:: [^=\n]+)? = ", text)) | set(re.findall(r"def (_[a-z]\w*)", text))
    used = set(re.findall(r"\.(_[a-z]\w*)", text))
    assert used - own <= CLIENT.keys() | CLIENT_ATTRIBUTES.keys() | CONNECTION.keys()
    replaced = {"_connect", "_invoke", "_send_ping"}
    assert all(f"self._connection.{name} = " in text for name in replaced)


def test_the_requirement_has_an_upper_bound_that_the_installed_version_meets() -> None:
    settings = ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    (needed,) = [line for line in settings["options"]["install_requires"].splitlines() if line.startswith("kazoo")]
    bound = re.search(r"<(\d+)\.(\d+)", needed)
    assert bound is not None, needed
    major, minor = (int(part) for part in version("kazoo").split(".")[:2])
    assert (major, minor) < (int(bound[1]), int(bound[2]))
