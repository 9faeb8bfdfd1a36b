"""The requests that releases of Apache Kafka serve, and how a broker for tests behaves as one of them (`Kafka(as_version="2.8")`).

The ranges are those that a broker of each release lists in ApiVersions, up to 3.9 with ZooKeeper. Of these a broker for tests lists what it
serves itself. Kafka's class ApiVersionsResponse; KIP-511 for requests of a version that is too high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.errors import ErrorCode
from txbroker.testing.errors import KitError
from txbroker.wire.headers import API_VERSIONS_KEY
from txbroker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from txbroker.wire.schema import VersionRange, parse_versions

RELEASES = (
    "0.11", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6",
    "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3",
)  # fmt: skip
_FIRST_WITH_RANGE = "2.4"  # whose answer to an ApiVersions of an unknown version has the known ones (KIP-511)
_FIRST_WITH_FEATURES = "4.0"  # of what a broker of this kind has: transaction.version (KIP-890)
_VERSION = re.compile(r"(0\.\d+|[1-9]\d*\.\d+)(\.\d+)*")

# By API key: the releases since which a broker lists these versions.
_HISTORY: Mapping[int, str] = {
    0: "0.11:0-3 1.0:0-5 2.0:0-6 2.1:0-7 2.4:0-8 2.8:0-9 3.7:0-10 3.8:0-11 4.0:0-12 4.1:0-13",  # Produce
    1: "0.11:0-5 1.0:0-6 1.1:0-7 2.0:0-8 2.1:0-10 2.3:0-11 2.7:0-12 3.1:0-13 3.5:0-15 3.7:0-16 3.9:0-17 4.0:4-17 4.1:4-18",  # Fetch
    2: "0.11:0-2 2.0:0-3 2.1:0-4 2.2:0-5 2.8:0-6 3.0:0-7 3.5:0-8 3.9:0-9 4.0:1-10 4.2:1-11",  # ListOffsets
    3: "0.11:0-4 1.0:0-5 2.0:0-6 2.1:0-7 2.3:0-8 2.4:0-9 2.8:0-11 3.1:0-12 4.0:0-13",  # Metadata
    4: "0.11:0 1.0:0-1 2.2:0-2 2.4:0-4 2.8:0-5 3.2:0-6 3.4:0-7 4.0:none",  # LeaderAndIsr
    5: "0.11:0 2.2:0-1 2.4:0-2 2.6:0-3 3.4:0-4 4.0:none",  # StopReplica
    6: "0.11:0-3 1.0:0-4 2.2:0-5 2.4:0-6 2.8:0-7 3.4:0-8 4.0:none",  # UpdateMetadata
    7: "0.11:1 1.0:0-1 2.2:0-2 2.4:0-3 4.0:none",  # ControlledShutdown
    8: "0.11:0-3 2.0:0-4 2.1:0-6 2.3:0-7 2.4:0-8 3.7:0-9 4.0:2-9 4.2:2-10",  # OffsetCommit
    9: "0.11:0-3 2.0:0-4 2.1:0-5 2.4:0-6 2.5:0-7 3.0:0-8 3.7:0-9 4.0:1-9 4.2:1-10",  # OffsetFetch
    10: "0.11:0-1 2.0:0-2 2.4:0-3 3.0:0-4 3.8:0-5 3.9:0-6",  # FindCoordinator
    11: "0.11:0-2 2.0:0-3 2.2:0-4 2.3:0-5 2.4:0-6 2.5:0-7 3.2:0-9 4.0:2-9 4.1:0-9",  # JoinGroup
    12: "0.11:0-1 2.0:0-2 2.3:0-3 2.4:0-4",  # Heartbeat
    13: "0.11:0-1 2.0:0-2 2.4:0-4 3.2:0-5",  # LeaveGroup
    14: "0.11:0-1 2.0:0-2 2.3:0-3 2.4:0-4 2.5:0-5",  # SyncGroup
    15: "0.11:0-1 2.0:0-2 2.3:0-3 2.4:0-5 4.0:0-6",  # DescribeGroups
    16: "0.11:0-1 2.0:0-2 2.4:0-3 2.6:0-4 3.8:0-5",  # ListGroups
    17: "0.11:0 1.0:0-1",  # SaslHandshake
    18: "0.11:0-1 2.0:0-2 2.4:0-3 3.9:0-4",  # ApiVersions
    19: "0.11:0-2 2.0:0-3 2.4:0-5 2.7:0-6 2.8:0-7 4.0:2-7",  # CreateTopics
    20: "0.11:0-1 2.0:0-2 2.1:0-3 2.4:0-4 2.7:0-5 2.8:0-6 4.0:1-6",  # DeleteTopics
    21: "0.11:0 2.0:0-1 2.6:0-2",  # DeleteRecords
    22: "0.11:0 2.0:0-1 2.4:0-2 2.5:0-3 2.7:0-4 3.8:0-5",  # InitProducerId
    23: "0.11:0 2.0:0-1 2.1:0-2 2.3:0-3 2.8:0-4 4.0:2-4",  # OffsetForLeaderEpoch
    24: "0.11:0 2.0:0-1 2.7:0-2 2.8:0-3 3.6:0-4 3.8:0-5",  # AddPartitionsToTxn
    25: "0.11:0 2.0:0-1 2.7:0-2 2.8:0-3 3.8:0-4",  # AddOffsetsToTxn
    26: "0.11:0 2.0:0-1 2.7:0-2 2.8:0-3 3.8:0-4 4.0:0-5",  # EndTxn
    27: "0.11:0 2.8:0-1 4.0:1 4.2:1-2",  # WriteTxnMarkers
    28: "0.11:0 2.0:0-1 2.1:0-2 2.5:0-3 3.8:0-4 4.0:0-5",  # TxnOffsetCommit
    29: "0.11:0 2.0:0-1 2.5:0-2 3.3:0-3 4.0:1-3",  # DescribeAcls
    30: "0.11:0 2.0:0-1 2.5:0-2 3.3:0-3 4.0:1-3",  # CreateAcls
    31: "0.11:0 2.0:0-1 2.5:0-2 3.3:0-3 4.0:1-3",  # DeleteAcls
    32: "0.11:0 1.1:0-1 2.0:0-2 2.6:0-3 2.8:0-4 4.0:1-4",  # DescribeConfigs
    33: "0.11:0 2.0:0-1 2.8:0-2",  # AlterConfigs
    34: "1.0:0 2.0:0-1 2.8:0-2 4.0:1-2",  # AlterReplicaLogDirs
    35: "1.0:0 2.0:0-1 2.6:0-2 3.2:0-3 3.3:0-4 4.0:1-4 4.3:1-5",  # DescribeLogDirs
    36: "1.0:0 2.2:0-1 2.5:0-2",  # SaslAuthenticate
    37: "1.0:0 2.0:0-1 2.5:0-2 2.7:0-3",  # CreatePartitions
    38: "1.1:0 2.0:0-1 2.4:0-2 3.3:0-3 4.0:1-3",  # CreateDelegationToken
    39: "1.1:0 2.0:0-1 2.5:0-2 4.0:1-2",  # RenewDelegationToken
    40: "1.1:0 2.0:0-1 2.5:0-2 4.0:1-2",  # ExpireDelegationToken
    41: "1.1:0 2.0:0-1 2.5:0-2 3.3:0-3 4.0:1-3",  # DescribeDelegationToken
    42: "1.1:0 2.0:0-1 2.4:0-2",  # DeleteGroups
    43: "2.2:0 2.4:0-2",  # ElectLeaders
    44: "2.3:0 2.4:0-1",  # IncrementalAlterConfigs
    45: "2.4:0 4.1:0-1",  # AlterPartitionReassignments
    46: "2.4:0",  # ListPartitionReassignments
    47: "2.4:0",  # OffsetDelete
    48: "2.6:0 2.8:0-1",  # DescribeClientQuotas
    49: "2.6:0 2.8:0-1",  # AlterClientQuotas
    50: "2.7:0",  # DescribeUserScramCredentials
    51: "2.7:0",  # AlterUserScramCredentials
    55: "4.0:0-2",  # DescribeQuorum
    56: "2.7:0 3.2:0-1 3.3:0-2 3.5:0-3 4.0:none",  # AlterPartition
    57: "2.7:0 3.3:0-1 4.0:0-2",  # UpdateFeatures
    58: "3.4:0 4.0:none",  # Envelope
    60: "2.8:0 3.7:0-1 4.0:0-2",  # DescribeCluster
    61: "2.8:0",  # DescribeProducers
    64: "4.0:0",  # UnregisterBroker
    65: "3.0:0",  # DescribeTransactions
    66: "3.0:0 3.8:0-1 4.1:0-2",  # ListTransactions
    67: "3.0:0 4.0:none",  # AllocateProducerIds
    68: "3.7:0 4.0:0-1",  # ConsumerGroupHeartbeat
    69: "3.8:0 4.0:0-1",  # ConsumerGroupDescribe
    74: "4.0:0 4.1:0-1",  # ListConfigResources
    75: "4.0:0",  # DescribeTopicPartitions
}


class Release(NamedTuple):
    """`ranges`: versions by API key."""

    name: str
    ranges: Mapping[int, VersionRange]

    def serves(self, api_key: int, version: int) -> bool:
        """Whether a broker of this release handles such a request. It closes the connection otherwise, but for ApiVersions."""
        return version in self.ranges.get(api_key, ())

    def is_since(self, name: str) -> bool:
        """Whether it is this release or a later one."""
        return RELEASES.index(self.name) >= RELEASES.index(name)

    def narrow(self, answer: Any) -> None:
        """Leave in an answer to ApiVersions what a broker of this release lists."""
        known = []
        for each in answer.api_keys:
            range_ = self.ranges.get(each.api_key)
            if range_ is not None:
                low, high = max(each.min_version, range_.low), min(each.max_version, range_.high)
                if low <= high:
                    known.append(ApiVersion(api_key=each.api_key, min_version=low, max_version=high))
        answer.api_keys = known
        if not self.is_since(_FIRST_WITH_FEATURES):
            answer.supported_features, answer.finalized_features, answer.finalized_features_epoch = [], [], -1

    def unknown_version(self) -> ApiVersionsResponse:
        """The answer, in version 0, to an ApiVersions of a version that this release does not serve."""
        low, high = self.ranges[API_VERSIONS_KEY]
        own = [ApiVersion(api_key=API_VERSIONS_KEY, min_version=low, max_version=high)] if self.is_since(_FIRST_WITH_RANGE) else []
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def release_of(version: str) -> Release:
    """That of a version such as 2.8 or 2.8.1; KitError."""
    found = _VERSION.fullmatch(version)
    if found is None or found[1] not in RELEASES:
        raise KitError(f"as_version is {version!r}; it must be a release of Kafka from {RELEASES[0]} to {RELEASES[-1]}, such as 2.8")
    name = found[1]
    until = RELEASES[: RELEASES.index(name) + 1]
    ranges = {api_key: _range_in(history, until) for api_key, history in _HISTORY.items()}
    return Release(name, {api_key: range_ for api_key, range_ in ranges.items() if range_ is not None})


def _range_in(history: str, releases: Sequence[str]) -> VersionRange | None:
    """The last range of those that these releases began."""
    found = "none"
    for text in history.split():
        since, _, versions = text.partition(":")
        if since in releases:
            found = versions
    return None if found == "none" else parse_versions(found)
