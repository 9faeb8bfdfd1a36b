"""Batches with a correct CRC and invalid content, produced to a broker: the errors, and what is stored.

`pytest --broker=kafka` checks the errors that are listed for Apache Kafka in `tests/support/odd_batches.py`.
"""

from __future__ import annotations

import time

import pytest

from tests.support.broker import BrokerProcess
from tests.support.odd_batches import CASES, HOUR_MS, batch, latest_of, record
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, create_topic
from tests.support.raw_log import LATEST, fetch_request, list_offset, produce
from tests.support.server import Server
from txbroker.errors import ErrorCode
from txbroker.wire import legacy
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record


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


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("stamps", [False, True], ids=["CreateTime", "LogAppendTime"])
def test_a_batch_that_claims_log_append_time(broker: Server, name: str, stamps: bool, codec: Codec) -> None:
    limits = {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)}
    create_topic(broker, name, configs={**KEEP, **limits, "message.timestamp.type": "LogAppendTime" if stamps else "CreateTime"})
    now_ms = int(time.time() * 1000)
    latest = {"now": now_ms, "past": now_ms - 2 * HOUR_MS, "future": now_ms + 2 * HOUR_MS, "none": -1}
    with RawConnection(broker.address) as connection:
        answers = {
            at: produce(connection, name, batch(record(), now_ms=now_ms, latest=ms, codec=codec, attributes=8)).error_code
            for at, ms in latest.items()
        }
    refused = dict.fromkeys(latest, ErrorCode.INVALID_TIMESTAMP)
    assert answers == (refused if stamps else {**refused, "now": ErrorCode.NONE})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("stamps", [False, True], ids=["CreateTime", "LogAppendTime"])
def test_an_old_message_set_that_claims_log_append_time(broker: Server, name: str, stamps: bool, codec: Codec) -> None:
    if broker.kind == "kafka":
        pytest.skip("Kafka 4 does not take old message sets")
    create_topic(broker, name, configs={**KEEP, "message.timestamp.type": "LogAppendTime" if stamps else "CreateTime"})
    now_ms = int(time.time() * 1000)
    answers = []
    with RawConnection(broker.address) as connection:
        for append_time in (None, now_ms, -1):
            old = legacy.build([Record(0, now_ms, b"k", b"v")], magic=1, codec=codec, log_append_time=append_time)
            answers.append(produce(connection, name, old, version=2).error_code)
    refused = ErrorCode.INVALID_TIMESTAMP
    assert answers == [ErrorCode.NONE, refused if stamps else ErrorCode.NONE, refused]
