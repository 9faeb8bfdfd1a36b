"""Which topics are copied: found again periodically, created and given partitions on the target, and marked as copies."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from twisted.internet.task import deferLater

from txbroker.client.client_errors import ClientError
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_leaders import TopicLeaders
from txbroker.errors import error_name
from txbroker.mirror.batches import Rules
from txbroker.mirror.cluster import Cluster
from txbroker.mirror.map_records import MapContent, TopicMark, progress_pair, runs_pair, topic_pair
from txbroker.mirror.map_topic import MapTopic, read_map
from txbroker.mirror.partition import PartitionCopy, State
from txbroker.mirror.preflight import APPEND_TIME, SOURCE_KEY, copied_configs, differences
from txbroker.mirror.requests import alter_topic, create_partitions, create_topic, describe_topics
from txbroker.mirror.settings import MAP_TOPIC, MirrorSettings
from txbroker.names import NULL_TOPIC_ID, TopicPartition, amount

log = logging.getLogger("txbroker.mirror")

RETRY_S, RETRIES = 0.1, 300
_ADVICE = {
    "source": "to copy the new topic, stop the mirror and delete the topic on the target",
    "target": "start the mirror again to copy it from its beginning",
}


class Refused(Exception):
    """A topic cannot be copied. The text says why and what to do."""


class Topics:
    """`partitions`: all that are copied. `refused`: topics that are not, and why."""

    def __init__(self, source: Cluster, target: Cluster, map_topic: MapTopic, settings: MirrorSettings, reactor: Any) -> None:
        self.partitions: dict[TopicPartition, PartitionCopy] = {}
        self.refused: dict[str, str] = {}
        self.marks: dict[str, TopicMark] = {}
        self._source = source
        self._target = target
        self._map_topic = map_topic
        self._settings = settings
        self._reactor = reactor
        self._rules: dict[str, Rules] = {}
        self._known_keys: frozenset[str] = frozenset()

    def rules(self, topic: str) -> Rules:
        """How batches of a topic are changed."""
        return self._rules[topic]

    async def discover(self) -> list[PartitionCopy]:
        """Look for topics and partitions that are not copied yet; returns their copies. ClientError, CorruptRecords."""
        await self._source.refresh()
        await self._target.refresh()
        if not self._known_keys:
            self._known_keys = frozenset((await describe_topics(self._target, [MAP_TOPIC]))[MAP_TOPIC].values)
            if self._settings.same_offsets and SOURCE_KEY not in self._known_keys:
                raise Refused(
                    "--same-offsets needs txbroker on the target: other brokers give records offsets of their own. Leave it out: the "
                    "offsets of groups are then translated"
                )
        found = [name for name in sorted(self._source.topics) if self._settings.selects(name)]
        new = [name for name in found if name not in self.marks]
        source_marks = (await read_map(self._source, self._reactor))[0] if new else MapContent()
        added: list[PartitionCopy] = []
        for name in found:
            try:
                if name in self.marks:
                    added += await self._grown(name)
                else:
                    added += await self._begin(name, source_marks)
                self.refused.pop(name, None)
            except Refused as refused:
                self._refuse(name, str(refused))
            except ClientError as error:
                self._refuse(name, f"{name} is not copied yet: {error}; trying again")
        return added

    def _refuse(self, name: str, why: str) -> None:
        if self.refused.get(name) != why:
            self.refused[name] = why
            log.warning("%s", why)

    def changed(self, topic: str) -> str:
        """Why a topic that was copied cannot be copied any more: it was deleted or created again on one side; else empty."""
        mark = self.marks[topic]
        for cluster, known in ((self._source, mark.source_topic_id), (self._target, mark.target_topic_id)):
            now = cluster.topics.get(topic)
            if now is not None and _differ(now.topic_id, known):
                return _created_again(topic, cluster)
        return ""

    # --- a topic that is new to this run ---

    async def _begin(self, name: str, source_marks: MapContent) -> list[PartitionCopy]:
        source = self._source.topics[name]
        content, source_id = self._map_topic.content, self._source.cluster_id
        mark = content.topics.get((source_id, name))
        target = self._target.topics.get(name)
        if name in self._target.unavailable:
            raise ClientError(f"the target cannot use it now ({error_name(self._target.unavailable[name])})")
        again = mark is not None and (target is None or _differ(target.topic_id, mark.target_topic_id))
        self._check_marks(name, source, None if again else mark, source_marks)
        if again:
            log.warning("%s was deleted on the target: it is copied from its beginning", name)
            await self._forget(name)
            mark = None
        configs = (await describe_topics(self._source, [name]))[name]
        if target is None:
            same_offsets = self._settings.same_offsets
            wanted, unknown = copied_configs(configs.values, configs.own, self._known_keys, same_offsets=same_offsets)
            if unknown:
                log.warning("%s: the target does not know %s, which is set on the source", name, ", ".join(unknown))
            if self._settings.same_offsets:
                wanted[SOURCE_KEY] = source_id
            await create_topic(self._target, name, len(source.by_partition), self._settings.replication_factor, wanted)
            target = await self._until_there(name, len(source.by_partition))
            log.info("%s: created on the target with %s", name, amount(len(source.by_partition), "partition"))
        elif self._settings.same_offsets and mark is None:
            await self._take_empty(name, target)
        target = await self._grow_target(source, target)
        target_configs = (await describe_topics(self._target, [name]))[name].values
        for difference in differences(name, configs.values, target_configs, same_offsets=self._settings.same_offsets):
            log.warning("%s", difference)
        append_time = target_configs.get("message.timestamp.type") == APPEND_TIME
        self._rules[name] = Rules(keep_offsets=self._settings.same_offsets, append_time=append_time)
        origins = [origin for _, known in source_marks.copies(name) for origin in known.origins]
        new_mark = TopicMark(self._settings.name, source.topic_id, target.topic_id, (*origins, source_id), self._settings.same_offsets)
        if new_mark != mark:
            await self._map_topic.write([topic_pair(source_id, name, new_mark)])
        self.marks[name] = new_mark
        return [self._copy(name, index) for index in source.by_partition]

    def _check_marks(self, name: str, source: TopicLeaders, mark: TopicMark | None, source_marks: MapContent) -> None:
        """Refused unless the topic may be copied, as far as the marks of both clusters say."""
        for other, copied in source_marks.copies(name):
            if self._target.cluster_id in copied.origins:
                raise Refused(
                    f"{name} of the source is itself a copy of records from the target (by the mirror {copied.name!r} from cluster "
                    f"{other}): copying it back would repeat them for ever; stop one of the two mirrors and promote its copy"
                )
        for other, _ in self._map_topic.content.copies(name):
            if other != self._source.cluster_id:
                raise Refused(f"{name} of the target is a copy from another cluster, {other}; promote it first, or copy to another cluster")
        if mark is None:
            return
        if mark.promoted:
            raise Refused(f"{name} of the target was promoted; delete it there to copy it again from its beginning")
        if mark.name != self._settings.name:
            raise Refused(f"{name} is copied by the mirror {mark.name!r}; run that one, or promote the topic first")
        if _differ(mark.source_topic_id, source.topic_id):
            raise Refused(_created_again(name, self._source))
        if mark.same_offsets != self._settings.same_offsets:
            having = "with" if mark.same_offsets else "without"
            raise Refused(f"{name} was copied {having} --same-offsets before; go on {having} it, or delete the topic on the target")

    async def _forget(self, name: str) -> None:
        """Delete what is stored about the partitions of a topic."""
        source_id, content = self._source.cluster_id, self._map_topic.content
        pairs = []
        for (source, partition), mapped in list(content.partitions.items()):
            if source == source_id and partition.topic == name:
                pairs += [runs_pair(source, partition, first, None) for first in mapped.runs]
                if mapped.progress is not None:
                    pairs.append((progress_pair(source, partition, mapped.progress)[0], None))
                del content.partitions[source, partition]
        await self._map_topic.write(pairs)

    async def _take_empty(self, name: str, target: TopicLeaders) -> None:
        """Have a topic of the target that exists, and is empty, keep the source's offsets."""
        where = {TopicPartition(name, index): leader.node_id for index, leader in target.by_partition.items() if leader is not None}
        if await self._target.offsets(EARLIEST, where) != await self._target.offsets(LATEST, where):
            raise Refused(f"{name} of the target has records; --same-offsets needs an empty topic: delete it there")
        await alter_topic(self._target, name, SOURCE_KEY, self._source.cluster_id)

    def _copy(self, name: str, index: int) -> PartitionCopy:
        partition = TopicPartition(name, index)
        copy = self.partitions[partition] = PartitionCopy(partition, keep_offsets=self._settings.same_offsets)
        mapped = self._map_topic.content.partitions.pop((self._source.cluster_id, partition), None)
        offset_map = None if mapped is None else mapped.offset_map()
        if mapped is not None and mapped.progress is not None and offset_map is not None:
            copy.restore(offset_map, mapped.progress)
        return copy

    # --- a topic that is copied already ---

    async def _grown(self, name: str) -> list[PartitionCopy]:
        problem = self.changed(name)
        if problem:
            raise Refused(problem)
        source = self._source.topics[name]
        missing = [index for index in source.by_partition if TopicPartition(name, index) not in self.partitions]
        if not missing:
            return []
        target = self._target.topics.get(name)
        if target is None:
            raise Refused(f"{name} was deleted on the target; stop the mirror and start it again to copy it from its beginning")
        await self._grow_target(source, target)
        log.info("%s: the source has %s more", name, amount(len(missing), "partition"))
        return [self._copy(name, index) for index in missing]

    async def _grow_target(self, source: TopicLeaders, target: TopicLeaders) -> TopicLeaders:
        """Give the target's topic as many partitions as the source's has."""
        count = len(source.by_partition)
        if len(target.by_partition) >= count:
            return target
        await create_partitions(self._target, source.name, count)
        return await self._until_there(source.name, count)

    async def _until_there(self, name: str, count: int) -> TopicLeaders:
        """The target's topic, once so many partitions have leaders; ClientError."""
        for _ in range(RETRIES):
            await self._target.refresh()
            topic = self._target.topics.get(name)
            if topic is not None and topic.complete and len(topic.by_partition) >= count:
                return topic
            await deferLater(self._reactor, RETRY_S)
        raise ClientError(f"{name} was created on the target, but not each partition (of {count}) has a leader")

    def stop_changed(self) -> Mapping[PartitionCopy, str]:
        """The partitions that are copied and cannot be any more, with the reason."""
        found: dict[PartitionCopy, str] = {}
        for partition, copy in self.partitions.items():
            if copy.state is not State.STOPPED:
                problem = self.changed(partition.topic)
                if not problem and partition.topic not in {**self._source.topics, **self._source.unavailable}:
                    problem = f"{partition.topic} was deleted on the source"
                if problem:
                    found[copy] = problem
        return found


def _differ(one: bytes, other: bytes) -> bool:
    """Whether two topic ids are known and differ."""
    return NULL_TOPIC_ID not in (one, other) and one != other


def _created_again(topic: str, cluster: Cluster) -> str:
    return f"{topic} was deleted on the {cluster.label} and created again, so that its offsets began again; {_ADVICE[cluster.label]}"
