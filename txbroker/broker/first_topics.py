"""The topics that are to be there from the start: `KAFKA_CREATE_TOPICS` of the container images."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from twisted.internet.defer import Deferred

from txbroker.cluster.topics import NewTopic, TopicAdmin
from txbroker.config.environment import FirstTopic
from txbroker.errors import BrokerError, ErrorCode

log = logging.getLogger("txbroker.broker")


def make(admin: TopicAdmin, topics: Sequence[FirstTopic]) -> Deferred[None]:
    """Create each that does not exist, one after the other; one that cannot be made is an error in the log, and the others are made."""
    return Deferred.fromCoroutine(_make(admin, topics))


async def _make(admin: TopicAdmin, topics: Sequence[FirstTopic]) -> None:
    for topic in topics:
        configs: dict[str, str | None] = {} if topic.cleanup_policy is None else {"cleanup.policy": topic.cleanup_policy}
        wanted = NewTopic(name=topic.name, partition_count=topic.partitions, replication_factor=topic.replicas, configs=configs)
        try:
            await admin.create(wanted, validate_only=False)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.error("topic %s of KAFKA_CREATE_TOPICS was not made: %s (%s)", topic.name, error, error.code.name)
        else:
            log.info("topic %s of KAFKA_CREATE_TOPICS was made, with %d partitions", topic.name, topic.partitions)
