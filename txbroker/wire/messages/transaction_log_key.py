"""TransactionLogKey: versions 0. A record of `__transaction_state`."""

from __future__ import annotations

from txbroker.wire.schema import Data, String


class TransactionLogKey(Data, versions="0"):
    transactional_id: String
