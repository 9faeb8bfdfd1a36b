"""ListTransactions v2: the filter by a pattern (KIP-1152), on a real broker."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import ListTransactionsRequest

from tests.support import raw_transactions as raw
from tests.support.raw import RawConnection
from tests.support.server import Server

INVALID_REGULAR_EXPRESSION = 128

pytest.importorskip("re2", reason="google-re2 is not installed: pip install '.[patterns]'")
pytestmark = pytest.mark.process


def listed(connection: RawConnection, pattern: str | None) -> set[str]:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=pattern)
    answer = connection.call(request, 2)
    assert answer.error_code == 0
    return {state.transactional_id for state in answer.transaction_states}


def test_ids_that_match_as_a_whole(broker: Server, name: str) -> None:
    ids = {f"{name}-{kind}" for kind in ("orders-1", "orders-22", "billing", "x" * 200 + "!")}
    with RawConnection(broker.address) as connection:
        for transactional_id in ids:
            raw.initialize(connection, transactional_id)
        assert ids <= listed(connection, None) and ids <= listed(connection, "")
        assert listed(connection, f"{name}-orders-[0-9]+") == {f"{name}-orders-1", f"{name}-orders-22"}
        assert listed(connection, f"{name}-orders-[0-9]") == {f"{name}-orders-1"}
        assert listed(connection, "orders") == set()
        assert listed(connection, f"{name}-(x+x+)+y") == set()  # takes exponential time where a match is tried in every way
        assert listed(connection, f"{name}-(x+x+)+!") == {f"{name}-{'x' * 200}!"}


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", r"(a)\1", "(?=a)"])
def test_patterns_that_are_refused(broker: Server, pattern: str) -> None:
    """Those that are not regular, too."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=pattern)
    with RawConnection(broker.address) as connection:
        assert connection.call(request, 2).error_code == INVALID_REGULAR_EXPRESSION
