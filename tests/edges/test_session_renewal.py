"""A session that ends is followed by another one, whatever fails meanwhile: a new session, or what a broker does with it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from tests.support.fakes.turns import Turns
from txbroker.cluster.tree.interface import ConnectionLost, NoSpaceInStore, Refused, SessionExpired, Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.cluster.tree.session_tree import RETRY_S, RETRY_S_MAX, SessionTree
from txbroker.errors import StartError

ERRORS: list[list[Exception]] = [
    [NoSpaceInStore("/", "the disk of the metadata is full")],
    [Refused("/brokers/ids/1", None, "ZooKeeper refuses the operation on node /brokers/ids/1")],
    [ConnectionLost("/") for _ in range(10)],
    [SessionExpired("/")],  # of a session that has not ended: a late answer
    [KeyError("a defect")],
    [StartError("the answer took too long")],
]
IDS = ["full disk", "refused", "ten lost connections", "expired", "defect", "no answer"]


class Renewals:
    """A broker's sessions, one after the other. `opening` and `renewing`: the errors of the next attempts."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = Turns()
        self.trees = MemoryTrees(self.turns.call_soon)
        self.opening: list[Exception] = []
        self.renewing: list[Exception] = []
        self.renewed: list[Tree] = []
        self.closed = 0
        self.tree = SessionTree(self.trees.session(), self._open, self._closed, self.clock, None, lambda: 0.5)
        self.tree.on_renewed(self._renewed)

    def _open(self) -> Deferred[Any]:
        return fail(self.opening.pop(0)) if self.opening else succeed(self.trees.session())

    async def _renewed(self, session: Tree) -> None:
        await session.exists("/")
        if self.renewing:
            raise self.renewing.pop(0)
        await session.create("/broker", ephemeral=True)
        self.renewed.append(session)

    def _closed(self) -> None:
        self.closed += 1

    def expire(self) -> None:
        self.trees.expire(self.tree.session)
        self.turns.run()

    def pass_time(self) -> None:
        while self.clock.getDelayedCalls():
            self.clock.advance(RETRY_S)
            self.turns.run()

    def registered(self) -> bool:
        return self.turns.result(self.tree.exists("/broker")) is not None


@pytest.mark.parametrize("errors", ERRORS, ids=IDS)
def test_what_a_broker_does_with_a_new_session_is_repeated(errors: list[Exception], caplog: pytest.LogCaptureFixture) -> None:
    renewals = Renewals()
    renewals.renewing += errors
    renewals.expire()
    assert not renewals.registered()
    renewals.pass_time()
    assert renewals.registered() and renewals.renewed == [renewals.tree.session]
    line = "cannot use its new session with the metadata yet, retrying: "
    said = [record.getMessage() for record in caplog.records if line in record.message]
    assert len(said) == (0 if isinstance(errors[0], SessionExpired) else 4 if len(errors) == 10 else 1)
    defects = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(defects) == isinstance(errors[0], KeyError), "only a defect is an error with a traceback"


@pytest.mark.parametrize("errors", ERRORS, ids=IDS)
def test_a_session_that_cannot_be_opened_is_opened_later(errors: list[Exception], caplog: pytest.LogCaptureFixture) -> None:
    renewals = Renewals()
    renewals.opening += errors
    renewals.expire()
    renewals.pass_time()
    assert renewals.registered()
    if not isinstance(errors[0], SessionExpired):
        assert "cannot open a session with the metadata, retrying: " in caplog.text


def test_a_session_that_ends_during_its_renewal_is_followed_by_another_one(caplog: pytest.LogCaptureFixture) -> None:
    renewals = Renewals()
    renewals.renewing.append(ConnectionLost("/"))
    renewals.expire()
    first = renewals.tree.session
    renewals.expire()  # while the renewal waits to be repeated
    assert renewals.registered() and renewals.tree.session is not first
    renewals.pass_time()
    assert renewals.renewed == [renewals.tree.session]
    renewals.renewing.append(ConnectionLost("/"))
    renewals.expire()
    renewals.pass_time()
    assert len(renewals.renewed) == 2 and renewals.registered()


@pytest.mark.parametrize("opening", [True, False])
def test_a_tree_that_is_closed_opens_no_further_session(opening: bool) -> None:
    renewals = Renewals()
    (renewals.opening if opening else renewals.renewing).extend(ConnectionLost("/") for _ in range(5))
    renewals.expire()
    renewals.turns.result(renewals.tree.close())
    assert renewals.closed == 1
    assert not renewals.clock.getDelayedCalls()
    renewals.clock.advance(RETRY_S_MAX)
    assert renewals.renewed == []


def test_a_callback_that_fails_at_the_end_of_a_session_does_not_stop_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    renewals = Renewals()
    session: Any = renewals.tree.session
    session._expired_callbacks.insert(0, lambda: {}["x"])
    renewals.expire()
    assert renewals.registered()
    assert "a callback at the end of a session failed" in caplog.text
