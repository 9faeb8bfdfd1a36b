"""`.kafka_cleanshutdown`: a directory with this file was closed whole, so that its logs need no recovery.

Kafka 3.9 writes `{"version":0,"brokerEpoch":-1}` (KIP-966), older brokers an empty file; its presence is what counts.
"""

from __future__ import annotations

FILE_NAME = ".kafka_cleanshutdown"


def content(broker_epoch: int) -> bytes:
    """What the file holds; `broker_epoch` is -1 unless a KRaft controller gave one."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch
