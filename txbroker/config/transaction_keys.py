"""Keys of transactions and producer ids."""

from __future__ import annotations

from txbroker.config.checks import at_least
from txbroker.config.keys import Importance, Key, Type, Update

KEYS = (
    Key("transactional.id.expiration.ms", Type.INT, 604_800_000, Importance.HIGH,
        "Time after which an idle transactional id is removed, in milliseconds.", at_least(1)),
    Key("transaction.max.timeout.ms", Type.INT, 900_000, Importance.HIGH,
        "Maximum transaction timeout of producers, in milliseconds.", at_least(1)),
    Key("transaction.state.log.min.isr", Type.INT, 2, Importance.HIGH,
        "min.insync.replicas of __transaction_state.", at_least(1)),
    Key("transaction.state.log.load.buffer.size", Type.INT, 5_242_880, Importance.HIGH,
        "Size of each read when a partition of __transaction_state is loaded, in bytes.", at_least(1)),
    Key("transaction.state.log.replication.factor", Type.SHORT, 3, Importance.HIGH,
        "Replication factor of __transaction_state when it is created. A broker without zookeeper.connect creates one replica.",
        at_least(1)),
    Key("transaction.state.log.num.partitions", Type.INT, 50, Importance.HIGH,
        "Number of partitions of __transaction_state when it is created.", at_least(1)),
    Key("transaction.state.log.segment.bytes", Type.INT, 104_857_600, Importance.HIGH,
        "Maximum size of a segment file of __transaction_state, in bytes.", at_least(1)),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", Type.INT, 10_000, Importance.LOW,
        "Interval at which timed-out transactions are aborted, in milliseconds.", at_least(1)),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", Type.INT, 3_600_000, Importance.LOW,
        "Interval at which expired transactional ids are removed, in milliseconds.", at_least(1)),
    Key("transaction.partition.verification.enable", Type.BOOLEAN, True, Importance.LOW,
        "Whether a partition verifies that a transaction is open (KIP-890).", update=Update.CLUSTER_WIDE),
    Key("producer.id.expiration.ms", Type.INT, 86_400_000, Importance.LOW,
        "Time after which a partition forgets an idle idempotent producer, in milliseconds.", at_least(1), Update.CLUSTER_WIDE),
)
