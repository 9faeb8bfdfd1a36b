"""Batches with a correct CRC and invalid content, produced to a broker: the errors, and what is stored.

`pytest --broker=kafka-4.3` checks the errors that are listed for Apache Kafka in `tests/support/odd_batches.py`.
"""

from __future__ import annotations

import time

import pytest

from tests.support.broker import BrokerProcess
from tests.support.odd_batches import CASES, latest_of
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, create_topic
from tests.support.raw_log import LATEST, fetch_request, list_offset, produce
from tests.support.server import Server
from txbroker.wire.compression import Codec


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_every_case(broker: Server, name: str, codec: Codec) -> None:
    ours = broker.kind == BrokerProcess.kind
    create_topic(broker, name, configs={**KEEP, "txbroker.record.validation": "full"} if ours else KEEP)
    now_ms = int(time.time() * 1000)
    answers, stored = {}, {}
    with RawConnection(broker.address) as connection:
        for case_name, case in CASES.items():
            end = list_offset(connection, name, LATEST).offset
            answers[case_name] = produce(connection, name, case.make(now_ms, codec)).error_code
            new_end = list_offset(connection, name, LATEST).offset
            assert (new_end > end) == (answers[case_name] == 0), case_name
            if case.answer == answers[case_name] == 0:
                records = connection.call(fetch_request(name, end), 8).responses[0].partitions[0].records
                stored[case_name] = latest_of(bytes(records)) - now_ms
    assert answers == {case_name: case.expected(codec, of_kafka=not ours) for case_name, case in CASES.items()}
    assert stored == {case_name: CASES[case_name].latest for case_name in stored}
