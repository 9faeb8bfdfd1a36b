"""`.kafka_cleanshutdown`: a directory with this file was closed whole, so that its logs need no recovery.

Kafka 3.9 writes `{"version":0,"brokerEpoch":-1}` (KIP-966), older brokers an empty file; its presence is what counts.
"""

from __future__ import annotations

FILE_NAME = ".kafka_cleanshutdown"
CONTENT = b'{"version":0,"brokerEpoch":-1}'  # an epoch is known only where a KRaft controller gives one
