"""A script of faults has the same journal each time, however often it runs. `test_rules.py` has the same with a real client."""

from __future__ import annotations

import pytest

from tests.support.raw import ConnectionEnded, RawConnection
from tests.support.raw_log import batch, fetch, produce
from tests.support.records import Sample
from txbroker.errors import ErrorCode
from txbroker.testing import Kafka

TIMES = 1000
BATCH = batch([Sample(b"key", b"value", (), 1_700_000_000_000)])
SCRIPT = """\
raw Produce v8 script-0: answered
raw Produce v8 script-0: answered NOT_LEADER_OR_FOLLOWER (a rule acted)
raw Produce v8 script-0: lost (a rule acted)
raw Produce v8 script-0: answered
raw Fetch v11 script-0: lost (a rule acted)
raw Fetch v11 script-0: lost (a rule acted)
raw Fetch v11 script-0: answered
raw Fetch v11 script-0: lost (a rule acted)
raw Fetch v11 script-0: answered"""


def run(kafka: Kafka) -> list[str]:
    """What the client saw of each request."""
    refused = kafka.when("Produce", topic="script").on_call(2).error("NOT_LEADER_OR_FOLLOWER")
    kafka.when("Produce", topic="script").after(refused).lose_answer()
    kafka.when("Fetch", topic="script").with_probability(0.5, seed=31).truncate(20)
    seen = []
    connection = RawConnection(kafka.bootstrap_servers)
    for number in range(9):
        try:
            if number < 4:
                seen.append(ErrorCode(produce(connection, "script", BATCH).error_code).name)
            else:
                seen.append(ErrorCode(fetch(connection, "script", 0, bytes_max=100).error_code).name)
        except ConnectionEnded:
            seen.append("ended")
            connection.close()
            connection = RawConnection(kafka.bootstrap_servers)
    connection.close()
    kafka.end_rules()
    return seen


@pytest.mark.process
@pytest.mark.extended
def test_a_thousand_times() -> None:
    with Kafka(topics={"script": 1}, settings={"log.retention.ms": -1}) as kafka:
        since = kafka.journal.last()
        fetched = ["ended" if "lost" in line else "NONE" for line in SCRIPT.splitlines()[4:]]
        for _ in range(TIMES):
            assert run(kafka) == ["NONE", "NOT_LEADER_OR_FOLLOWER", "ended", "NONE", *fetched]
        entries = kafka.journal.entries(since)
    assert len(entries) == 9 * TIMES
    assert {entries[at : at + 9].text(times=False) for at in range(0, len(entries), 9)} == {SCRIPT}
