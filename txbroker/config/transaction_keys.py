"""Keys of transactions and producer ids."""

from __future__ import annotations

from txbroker.config.checks import at_least
from txbroker.config.keys import Importance, Key, Type, Update

KEYS = (
    Key("transactional.id.expiration.ms", Type.INT, 604_800_000, Importance.HIGH,
        "How long an idle transactional id is remembered.", at_least(1), effective=False),
    Key("transaction.max.timeout.ms", Type.INT, 900_000, Importance.HIGH,
        "The longest transaction timeout that a producer may ask for.", at_least(1)),
    Key("transaction.state.log.min.isr", Type.INT, 2, Importance.HIGH,
        "How many replicas must have a record of the transaction topic; never more than its replication factor.",
        at_least(1), effective=False),
    Key("transaction.state.log.load.buffer.size", Type.INT, 5_242_880, Importance.HIGH,
        "How many bytes of the transaction topic are read at once when its state is loaded.", at_least(1), effective=False),
    Key("transaction.state.log.replication.factor", Type.SHORT, 3, Importance.HIGH,
        "The replicas of the transaction topic; never more than there are brokers when the topic is created.",
        at_least(1), effective=False),
    Key("transaction.state.log.num.partitions", Type.INT, 50, Importance.HIGH,
        "The partitions of the transaction topic, fixed once it exists.", at_least(1), effective=False),
    Key("transaction.state.log.segment.bytes", Type.INT, 104_857_600, Importance.HIGH,
        "The segment size of the transaction topic, in bytes.", at_least(1), effective=False),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", Type.INT, 10_000, Importance.LOW,
        "How often transactions are searched for those whose time is over.", at_least(1), effective=False),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", Type.INT, 3_600_000, Importance.LOW,
        "How often transactional ids are searched for those whose time is over.", at_least(1), effective=False),
    Key("transaction.partition.verification.enable", Type.BOOLEAN, True, Importance.LOW,
        "Whether a partition asks the coordinator if a transaction that it meets is open (KIP-890).",
        update=Update.CLUSTER_WIDE, effective=False),
    Key("producer.id.expiration.ms", Type.INT, 86_400_000, Importance.LOW,
        "How long an idle producer id is remembered by a partition.", at_least(1), Update.CLUSTER_WIDE),
)
