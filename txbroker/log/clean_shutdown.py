"""`.kafka_cleanshutdown`: the logs of a directory with this file were closed cleanly and need no recovery.

Kafka 3.9 writes `{"version":0,"brokerEpoch":-1}` (KIP-966), older brokers an empty file; only its presence counts.
"""

from __future__ import annotations

FILE_NAME = ".kafka_cleanshutdown"
CONTENT = b'{"version":0,"brokerEpoch":-1}'  # only a KRaft controller assigns an epoch
