"""What Apache Kafka's dump tool says of `__transaction_state`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support import java
from txbroker.transactions.transaction_states import TransactionState


def dumped_states(data: Path) -> list[tuple[str, TransactionState | None]]:
    """Transactional ids with their states, None for tombstones, in the order of each partition's log, as the tool decodes them."""
    found: list[tuple[str, TransactionState | None]] = []
    for log in sorted(data.glob("__transaction_state-*/*.log")):
        if log.stat().st_size:
            text = java.run("kafka-dump-log", "--transaction-log-decoder", "--files", log)
            lines = re.findall(r"^\| offset: .* key: (\{.*\}) payload: (.*)$", text, flags=re.MULTILINE)
            assert len(lines) == text.count("| offset: "), text
            assert text.count("isvalid: true") == text.count("baseOffset: ")
            for key, payload in lines:
                value = None if payload == "<DELETE>" else TransactionState(json.loads(payload)["data"]["transactionStatus"])
                found.append((json.loads(key)["data"]["transactionalId"], value))
    return found
