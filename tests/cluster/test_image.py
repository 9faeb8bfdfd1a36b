from __future__ import annotations

from txbroker.cluster.image import FULL, INCREMENTAL, ClusterImage, Endpoint, PartitionImage
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ID_A, ID_B = b"A" * 16, b"B" * 16


def partition(index: int, leader: int = 1, epoch: int = 0) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=[1],
        zk_version=4,
        replicas=[1, 2],
        offline_replicas=[2],
    )


def topic(name: str, topic_id: bytes, *partitions: UpdateMetadataPartitionState) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=list(partitions))


def broker(broker_id: int, port: int = 9092) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(port=port, host="h", listener="L", security_protocol=0)
    return UpdateMetadataBroker(id=broker_id, endpoints=[endpoint], rack="r")


def update(
    *topics: UpdateMetadataTopicState, brokers: tuple[UpdateMetadataBroker, ...] = (), epoch: int = 1
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1, controller_epoch=epoch, broker_epoch=1, topic_states=list(topics), live_brokers=list(brokers)
    )


def test_look_ups() -> None:
    image = ClusterImage()
    changes = image.apply(update(topic("a", ID_A, partition(1), partition(0)), brokers=(broker(2), broker(1))))
    assert (changes.changed, changes.deleted, changes.brokers) == (frozenset({"a"}), frozenset(), True)
    found = image.topic("a")
    assert found is not None and found is image.topic_by_id(ID_A)
    assert list(found.partitions) == [0, 1]
    assert image.partition("a", 1) == PartitionImage(1, 0, (1, 2), (1,), (2,), 4)
    assert image.partition("a", 2) is image.partition("b", 0) is None
    assert image.topic("b") is image.topic_by_id(ID_B) is None
    assert list(image.brokers) == [1, 2]
    assert image.brokers[1].rack == "r"
    assert image.endpoint(2, "L") == Endpoint("h", 9092, 0)
    assert image.endpoint(2, "M") is image.endpoint(3, "L") is None
    assert image.controller_id == 1


def test_returned_values_do_not_change() -> None:
    image = ClusterImage()
    image.apply(update(topic("a", ID_A, partition(0), partition(1))))
    before, version = image.topic("a"), image.version
    changes = image.apply(update(topic("a", ID_A, partition(1, leader=2, epoch=3))))
    assert changes.changed == {"a"}
    assert before is not None and before.partitions[1].leader == 1
    after = image.topic("a")
    assert after is not None and [p.leader for p in after.partitions.values()] == [1, 2]
    assert image.version > version


def test_brokers_are_replaced_as_a_whole() -> None:
    image = ClusterImage()
    assert image.apply(update(brokers=(broker(1), broker(2)))).brokers
    assert not image.apply(update(brokers=(broker(2), broker(1)))).brokers
    assert image.apply(update(brokers=(broker(1, port=1),))).brokers
    assert list(image.brokers) == [1]


def test_a_topic_that_is_deleted() -> None:
    image = ClusterImage()
    image.apply(update(topic("a", ID_A, partition(0), partition(1)), topic("b", ID_B, partition(0))))
    assert image.apply(update(topic("a", ID_A, partition(0, leader=-2)))).changed == {"a"}
    changes = image.apply(update(topic("a", ID_A, partition(1, leader=-2))))
    assert (changes.changed, changes.deleted) == (frozenset(), frozenset({"a"}))
    assert image.topic("a") is image.topic_by_id(ID_A) is None
    assert list(image.topics) == ["b"]
    assert image.apply(update(topic("never", ID_A, partition(0, leader=-2)))).deleted == {"never"}


def test_it_is_complete_after_a_request_that_no_others_have_to_follow() -> None:
    image = ClusterImage()
    request = update(topic("a", ID_A, partition(0)))
    request.type = INCREMENTAL
    image.apply(request)
    assert not image.apply(request).brokers and not image.is_complete
    assert image.apply(update()).brokers and image.is_complete  # requests that wait for it are completed
    assert not image.apply(request).brokers and image.is_complete


def test_a_full_request_removes_the_topics_that_it_does_not_name() -> None:
    image = ClusterImage()
    image.apply(update(topic("a", ID_A, partition(0)), topic("b", ID_B, partition(0), partition(1))))
    request = update(topic("b", ID_B, partition(1, leader=2)), topic("c", bytes(16), partition(0)))
    request.type = FULL
    changes = image.apply(request)
    assert (changes.changed, changes.deleted) == (frozenset({"b", "c"}), frozenset({"a"}))
    assert image.topic_by_id(ID_A) is None
    assert sorted(image.topics) == ["b", "c"] and len(image.topics["b"].partitions) == 2


def test_a_full_request_removes_an_older_topic_whose_successor_is_in_deletion() -> None:
    image = ClusterImage()
    image.apply(update(topic("a", ID_A, partition(0))))
    request = update(topic("a", ID_B, partition(0, leader=-2)))
    request.type = FULL
    changes = image.apply(request)
    assert (changes.changed, changes.deleted) == (frozenset(), frozenset({"a"}))
    assert image.topic("a") is image.topic_by_id(ID_A) is None


def test_a_topic_of_the_same_name_under_another_id_is_another_topic() -> None:
    image = ClusterImage()
    image.apply(update(topic("a", ID_A, partition(0), partition(1))))
    image.apply(update(topic("a", ID_B, partition(0, leader=3))))
    found = image.topic_by_id(ID_B)
    assert found is not None and list(found.partitions) == [0]
    assert image.topic_by_id(ID_A) is None


def test_a_late_deletion_of_an_older_topic() -> None:
    image = ClusterImage()
    image.apply(update(topic("a", ID_B, partition(0))))
    image.apply(update(topic("a", ID_A, partition(0, leader=-2))))
    found = image.topic("a")
    assert found is not None and found is image.topic_by_id(ID_B)
