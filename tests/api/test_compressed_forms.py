"""Compressed records in unusual forms: a broker stores what Java clients can read, and refuses everything else.

`pytest --broker=kafka` and `--broker=kafka-3.9` check which forms these are.
"""

from __future__ import annotations

import time

from tests.support.broker import BrokerProcess
from tests.support.compressed_forms import forms
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, create_topic
from tests.support.raw_log import LATEST, fetch_request, list_offset, produce
from tests.support.server import Server
from txbroker.errors import ErrorCode


def test_every_form(broker: Server, name: str) -> None:
    ours = broker.kind == BrokerProcess.kind
    create_topic(broker, name, configs={**KEEP, "txbroker.record.validation": "full"} if ours else KEEP)
    now_ms = int(time.time() * 1000)
    wrong = {}
    with RawConnection(broker.address) as connection:
        for form in forms():
            end = list_offset(connection, name, LATEST).offset
            code = produce(connection, name, form.batch(now_ms)).error_code
            stored = list_offset(connection, name, LATEST).offset - end
            if (code == 0, stored) != (form.read, form.records if form.read else 0) or (ours and code not in (0, ErrorCode.INVALID_RECORD)):
                wrong[form.name] = (code, stored)
            elif stored:
                records = bytes(connection.call(fetch_request(name, end), 8).responses[0].partitions[0].records)
                assert records[61:] == form.data, f"{form.name}: not stored as it was sent"
    assert wrong == {}
