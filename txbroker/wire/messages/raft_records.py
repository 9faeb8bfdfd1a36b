"""Control records of KRaft's metadata log: leaders, voters, the ends of snapshots (KIP-595, KIP-630, KIP-853)."""

from __future__ import annotations

from txbroker.names import NULL_TOPIC_ID
from txbroker.wire.schema import Data, Int16, Int32, Int64, String, Struct, Uint16, Uuid, v


class LeaderChangeMessageVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid = v("1+", default=NULL_TOPIC_ID)


class LeaderChangeMessage(Data, versions="0-1", flexible="0+"):
    version: Int16
    leader_id: Int32
    voters: list[LeaderChangeMessageVoter]
    granting_voters: list[LeaderChangeMessageVoter]


class SnapshotHeaderRecord(Data, versions="0", flexible="0+"):
    version: Int16
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Data, versions="0", flexible="0+"):
    version: Int16


class KRaftVersionRecord(Data, versions="0", flexible="0+"):
    version: Int16
    k_raft_version: Int16


class Endpoint(Struct):
    name: String
    host: String
    port: Uint16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class VotersVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    k_raft_version_feature: KRaftVersionFeature


class VotersRecord(Data, versions="0", flexible="0+"):
    version: Int16
    voters: list[VotersVoter]
