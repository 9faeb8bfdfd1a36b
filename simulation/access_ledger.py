"""What principals may do by the ACLs in ZooKeeper, and what each broker must know of them by now.

Each committed change of the ACLs of a topic is a version. An answer may follow from any version from the oldest that the broker may still
have up to the newest. A broker has at least a version

- that it has acknowledged itself,
- whose change node stays, NOTIFIED_S and the session's timeout after the commit, if it is connected to ZooKeeper all that time,
- that was committed before its session began.

After a connection was lost, the last two count RECOVERED_S later, since reading may have to wait for its next attempt. A change whose node
was deleted reaches the others with the next change of the topic, with their next session or with the periodic reading, which is longer
than a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulation.chance import stream
from simulation.ensemble import Transaction
from simulation.environment import Environment
from simulation.hosts import BrokerHost
from txbroker.security.acl_model import AclEntry, AclOperation, AclPermission, AclResource, PatternType, ResourcePattern
from txbroker.security.acl_nodes import CHANGES, acl_path, decode_acl
from txbroker.security.reported_nodes import RETRY_S_MAX

NOTIFIED_S = 1.0
RECOVERED_S = RETRY_S_MAX + 2.0
DELETED_S = 0.004  # after the commit a change node is deleted, at most
CHANGE_NODES = CHANGES[PatternType.LITERAL] + "/"


@dataclass(slots=True)
class Version:
    """The ACLs of a topic from `at_s` on. `reported`: the node that reports the change was not deleted."""

    at_s: float
    entries: frozenset[AclEntry]
    reported: bool = True

    def allows(self, principal: str, operation: AclOperation) -> bool:
        """Kafka's rule, of literal names, for READ and DESCRIBE."""
        own = [entry for entry in self.entries if entry.principal == principal]
        if any(entry.permission is AclPermission.DENY and entry.operation is operation for entry in own):
            return False
        enough = {operation, AclOperation.READ}
        return any(entry.permission is AclPermission.ALLOW and entry.operation in enough for entry in own)


class AccessLedger:
    """Of one run: it follows what is committed, and checks answers."""

    def __init__(self, environment: Environment, hosts: Mapping[int, BrokerHost], topics: tuple[str, ...], lost: float) -> None:
        """`lost`: how likely a change node is deleted at once."""
        self.versions = {topic: [Version(0.0, frozenset())] for topic in topics}
        self.answers = 0
        self._paths = {acl_path(ResourcePattern(AclResource.TOPIC, PatternType.LITERAL, topic)): topic for topic in topics}
        self._environment = environment
        self._hosts = hosts
        self._lost = lost
        self._chance = stream(environment.plan.seed, "change nodes")
        self._of_node: dict[str, list[Version]] = {}
        self._known: dict[tuple[int, int, str], int] = {}  # by broker, number of its start, and topic
        self._next = environment.ensemble.committed
        environment.ensemble.committed = self._committed

    def _committed(self, transaction: Transaction) -> None:
        self._next(transaction)
        now_s, made = self._environment.scheduler.now_s, []
        for path, node in transaction.changes.items():
            topic = self._paths.get(path)
            if topic is not None:
                version = Version(now_s, decode_acl(None if node is None else node.data).entries)
                self.versions[topic].append(version)
                made.append(version)
        for path, node in transaction.changes.items():
            if not path.startswith(CHANGE_NODES):
                continue
            if node is None:
                for version in self._of_node.get(path, ()):
                    version.reported = False
            else:
                self._of_node[path] = made
                if self._chance.random() < self._lost:
                    self._environment.counts["lost_change"] += 1
                    self._environment.scheduler.after(self._chance.random() * DELETED_S, lambda path=path: self._delete(path))  # type: ignore[misc]

    def _delete(self, path: str) -> None:
        self._environment.trace.add("zk", f"{path} is deleted")
        self._environment.ensemble.delete(path)

    def begin(self, broker_id: int, topics: tuple[str, ...]) -> tuple[int, dict[str, int]]:
        """A request is sent: which start of the broker it is, and the oldest version of each topic that it may have."""
        host = self._hosts[broker_id]
        for topic in topics:
            key = broker_id, host.starts, topic
            self._known[key] = max(self._known.get(key, 0), self._oldest(host, topic))
        return host.starts, {topic: self._known[broker_id, host.starts, topic] for topic in topics}

    def _oldest(self, host: BrokerHost, topic: str) -> int:
        session = host.sessions[-1] if host.sessions else None
        if session is None or session.began_s is None or session.connected_s is None or not host.serving:
            return 0
        now_s = self._environment.scheduler.now_s
        undisturbed = len(host.sessions) == 1 and session.connected_s == session.began_s  # what it serves with was read in this session
        ready_s = session.connected_s + (0.0 if undisturbed else RECOVERED_S)
        if now_s < ready_s:
            return 0
        noticed_s = NOTIFIED_S + self._environment.plan.session_timeout_s
        oldest = 0
        for index, version in enumerate(self.versions[topic]):
            if version.at_s <= session.began_s or (version.reported and now_s >= version.at_s + noticed_s):
                oldest = index
        return oldest

    def acknowledged(self, broker_id: int, starts: int, topic: str, entry: AclEntry, *, there: bool, begun: int) -> None:
        """A broker has acknowledged that an entry is there, or is not there, since version `begun`."""
        for index, version in enumerate(self.versions[topic][begun:], begun):
            if (entry in version.entries) == there:
                key = broker_id, starts, topic
                self._known[key] = max(self._known.get(key, 0), index)
                return
        self._environment.violate("I14", f"b{broker_id} has acknowledged a change of {topic} that ZooKeeper does not have: {entry}")

    def answered(
        self, client: str, broker_id: int, begun: tuple[int, dict[str, int]], topic: str, operation: AclOperation, *, allowed: bool
    ) -> None:
        """A broker has done for a client what this operation permits, or has denied it."""
        starts, oldest = begun
        if self._hosts[broker_id].starts != starts:
            return
        self.answers += 1
        versions = self.versions[topic][oldest[topic] :]
        if not any(version.allows(f"User:{client}", operation) == allowed for version in versions):
            what = "has done" if allowed else "has denied"
            since_s = versions[0].at_s
            self._environment.violate("I14", f"b{broker_id} {what} {operation.name} of {topic} for {client}; not so since {since_s:.3f} s")
