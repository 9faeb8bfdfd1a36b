"""ZooKeeper's access control lists of nodes, as Kafka's brokers set them with `zookeeper.set.acl` (kafka.zk.ZkData.defaultAcls)."""

from __future__ import annotations

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from txbroker.cluster.node_paths import SHARED_SECRET

# Groups of old consumers write here.
_OPEN = "/consumers"
# Below these are secrets.
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens", SHARED_SECRET)


def acls_of(path: str, *, are_set: bool) -> list[ACL]:
    """Of a node that is created; `path` is below the chroot. `are_set`: zookeeper.set.acl, for a session that is authenticated."""
    if not are_set or path == _OPEN:
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *(() if path.startswith(SENSITIVE) else READ_ACL_UNSAFE)]
