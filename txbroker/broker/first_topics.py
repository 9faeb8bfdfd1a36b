"""Creates the topics of `KAFKA_CREATE_TOPICS`, a variable of container images, when the broker has started."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from twisted.internet.defer import Deferred

from txbroker.cluster.topics import NewTopic, TopicAdmin
from txbroker.config.environment import FirstTopic
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import amount

log = logging.getLogger("txbroker.broker")


def make(admin: TopicAdmin, topics: Sequence[FirstTopic]) -> Deferred[None]:
    """Create those that do not exist, in order. A failure is logged, and the others are created."""
    return Deferred.fromCoroutine(_make(admin, topics))


async def _make(admin: TopicAdmin, topics: Sequence[FirstTopic]) -> None:
    for topic in topics:
        configs: dict[str, str | None] = {} if topic.cleanup_policy is None else {"cleanup.policy": topic.cleanup_policy}
        topic_settings = NewTopic(name=topic.name, partition_count=topic.partitions, replication_factor=topic.replicas, configs=configs)
        try:
            await admin.create(topic_settings, validate_only=False)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.error("cannot create topic %s of KAFKA_CREATE_TOPICS: %s (%s)", topic.name, error, error.code.name)
        else:
            log.info("created topic %s of KAFKA_CREATE_TOPICS with %s", topic.name, amount(topic.partitions, "partition"))
