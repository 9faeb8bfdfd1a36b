"""What the brokers of a cluster know of each other, while some know more than others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from txbroker.client.client_errors import ConnectionFailed
from txbroker.testing import KitError
from txbroker.testing.cluster_view import ClusterView
from txbroker.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


class View(ClusterView):
    """`known`: the partitions of the topic that each broker knows, or the error of a broker that cannot be asked."""

    def __init__(self, known: Mapping[int, Sequence[int] | Exception]) -> None:
        super().__init__(lambda: dict.fromkeys(known, ("127.0.0.1", 1)))
        self._known = known

    def metadata(self, broker: int, topic: str | None = None) -> MetadataResponse:
        """See `ClusterView`."""
        known = self._known[broker]
        if isinstance(known, Exception):
            raise known
        partitions = [
            MetadataResponsePartition(error_code=0, partition_index=number, leader_id=broker, replica_nodes=[], isr_nodes=[])
            for number in known
        ]
        return MetadataResponse(brokers=[], topics=[MetadataResponseTopic(error_code=0, name=topic, partitions=partitions)])


def test_a_partition_exists_if_one_broker_knows_it() -> None:
    view = View({0: [], 1: [0], 2: [0, 1]})
    assert [view.existing("t", number).leader_id for number in (0, 1)] == [1, 2]
    with pytest.raises(KitError, match="topic t has no partition 2; its partitions are 0, 1"):
        view.existing("t", 2)
    with pytest.raises(KitError, match="there is no topic t; create it first"):
        View({0: [], 1: []}).existing("t", 0)


@pytest.mark.parametrize("error", [ConnectionFailed("broker 0 has just ended"), KitError("broker 0 does not run")])
def test_a_broker_that_cannot_be_asked_hides_no_partition_that_others_know(error: Exception) -> None:
    assert View({0: error, 1: [0]}).existing("t", 0).leader_id == 1
    for others in ([], [1]):
        with pytest.raises(type(error), match="broker 0"):
            View({0: error, 1: others}).existing("t", 0)
