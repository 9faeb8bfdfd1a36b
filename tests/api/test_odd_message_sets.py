"""Old message sets with odd content, and batches with odd headers, produced to a broker: the errors, and how much is stored.

`pytest --broker=kafka-3.9` checks the answers that are listed for Kafka. Where txbroker's is another one, producers repeat neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.broker import BrokerProcess
from tests.support.odd_message_sets import Case, batches, cases
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import LATEST, list_offset, produce
from tests.support.server import Server


@pytest.mark.parametrize(("of", "version"), [(cases, 2), (batches, 8), (batches, 3)], ids=["old-sets", "batches-8", "batches-3"])
def test_every_case(broker: Server, name: str, of: Callable[[int], Iterator[Case]], version: int) -> None:
    ours = broker.kind == BrokerProcess.kind
    if broker.kind == "kafka":
        pytest.skip("Kafka 4 does not take old message sets and answers the first request of these versions with an error")
    create_topic(broker, name)
    answers, expected = {}, {}
    end = 0
    with RawConnection(broker.address) as connection:
        for case in of(int(time.time() * 1000)):
            answer = case.answer if ours or case.kafka is None else case.kafka
            code = produce(connection, name, case.data, version=version).error_code
            begin, end = end, list_offset(connection, name, LATEST).offset
            answers[case.name], expected[case.name] = (code, end - begin), (answer, case.records)
    assert answers == expected
