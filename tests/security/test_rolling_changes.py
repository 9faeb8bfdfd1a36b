"""Certificates, their authority and the mechanism of logins change in a cluster by the steps of docs/security.md, under load.

No partition becomes unavailable, no client has an error, and each acknowledged record is in the log once.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.commands import run as txbroker
from tests.metrics.scraping import Scrape
from tests.security.test_sasl_ssl_cluster import connected
from tests.support.acls import ALLOW, GROUP, LITERAL, READ, TOPIC, WRITE, Acl, create_acls, listed_acls
from tests.support.broker import BrokerProcess
from tests.support.certificates import Authority, Issued
from tests.support.rolling_changes import PARTITIONS, Availability, Client, Load, Reader, roll
from tests.support.sasl import MODULES, client_jaas
from tests.support.secured_cluster import BROKER, LISTENER, PASSWORDS, SaslSslCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.extended]

OLD, NEW = "SCRAM-SHA-256", "SCRAM-SHA-512"
KEYSTORE, TRUSTSTORE = (f"listener.name.{LISTENER.lower()}.ssl.{kind}.location" for kind in ("keystore", "truststore"))
NO_ERROR: frozenset[int] = frozenset()
OVERRIDES = {"min.insync.replicas": "2", "default.replication.factor": "3"}


@pytest.fixture
def cluster(server_directory: Path, tmp_path: Path, name: str) -> Iterator[SaslSslCluster]:
    made = SaslSslCluster(server_directory / name, [BrokerProcess.kind] * 3, tmp_path, OLD, OVERRIDES)
    yield made
    made.close()


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    started: list[Client] = []
    yield started
    for client in started:
        client.stop()


def prepare(cluster: SaslSslCluster, topic: str) -> None:
    """A topic, and the user alice who may write and read it, at all brokers."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    set_password(cluster, "alice", OLD)
    acls = {Acl(*what, LITERAL, "User:alice", "*", operation, ALLOW)
            for what, operation in (((TOPIC, topic), WRITE), ((TOPIC, topic), READ), ((GROUP, "*"), READ))}  # fmt: skip
    create_acls(cluster.brokers[1].address, acls)
    for broker_id, server in cluster.brokers.items():
        until(lambda address=server.address: listed_acls(address) == acls, "each broker has the ACLs")  # type: ignore[misc]
        connected(cluster, broker_id, "alice", OLD).close()


def set_password(cluster: SaslSslCluster, user: str, mechanism: str) -> None:
    flags = ("--bootstrap-server", cluster.bootstrap, "--mechanism", mechanism)
    txbroker("users", *flags, "--add", user, stdin=f"{PASSWORDS[user]}\n")


# Certificates


class Stores:
    """The key store and the trust store of each broker, which are replaced under the same names, or altered to others."""

    def __init__(self, cluster: SaslSslCluster, folder: Path, *, altered: bool) -> None:
        self._cluster = cluster
        self._folder = folder
        self._altered = altered
        self._number = 0
        for broker_id, server in cluster.brokers.items():
            for key, before in ((KEYSTORE, "ssl.keystore.location"), (TRUSTSTORE, "ssl.truststore.location")):
                path = self.path(broker_id, key)
                path.write_bytes(Path(server.overrides[before]).read_bytes())
                server.overrides[before] = str(path)

    def path(self, broker_id: int, key: str) -> Path:
        return self._folder / f"broker-{broker_id}-{key.split('.')[-2]}.pem"

    def put(self, broker_id: int, key: str, text: str) -> None:
        path = self.path(broker_id, key)
        self._number += 1
        other = self._folder / f"{path.stem}-{self._number}.pem"
        other.write_text(text)
        if self._altered:
            flags = ("--bootstrap-server", self._cluster.bootstrap, "--entity-type", "brokers", "--entity-name", str(broker_id))
            txbroker("configs", *flags, "--alter", "--add-config", f"{key}={other}")
        else:
            os.replace(other, path)

    def put_all(self, key: str, texts: dict[int, str], loaded: Callable[[int], bool]) -> None:
        """One broker after the other; wait until each has loaded its own."""
        for broker_id, text in texts.items():
            self.put(broker_id, key, text)
            if self._altered:
                until(lambda broker_id=broker_id: loaded(broker_id), f"broker {broker_id} has loaded {key}")  # type: ignore[misc]
        for broker_id in texts:
            until(lambda broker_id=broker_id: loaded(broker_id), f"broker {broker_id} has loaded {key}")  # type: ignore[misc]


def trusted(cluster: SaslSslCluster, broker_id: int) -> set[str]:
    """The subjects of the authorities that the broker trusts on its listener."""
    found = [dict(labels) for labels in Scrape(cluster.brokers[broker_id]).samples["txbroker_certificate_days"]]
    return {labels["subject"] for labels in found if (labels["listener"], labels["kind"]) == (LISTENER, "trusted")}


def shown(cluster: SaslSslCluster, broker_id: int) -> bytes:
    """The certificate that a new connection gets."""
    host, _, port = cluster.secure[broker_id].rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


@pytest.mark.parametrize("altered", [False, True], ids=["replaced-files", "altered"])
def test_an_authority_is_replaced(
    cluster: SaslSslCluster, clients: list[Client], tmp_path: Path, name: str, *, altered: bool
) -> None:
    for server in cluster.brokers.values():
        # Brokers show each other their certificates, so that each side needs the authority of the other one.
        server.overrides[f"listener.name.{LISTENER.lower()}.ssl.client.auth"] = "requested"
    old, new = cluster.authority, Authority(tmp_path, "new authority")
    stores = Stores(cluster, tmp_path, altered=altered)
    cluster.start()
    prepare(cluster, name)

    def settings(trust: str, text: str) -> dict[str, str]:
        path = tmp_path / f"clients trust {trust}.pem"
        path.write_text(text)
        return {**cluster.librdkafka("alice", OLD), "ssl.ca.location": str(path)}

    def begun(client: Load | Reader) -> None:
        clients.append(client)
        client.start()
        client.until_more()

    both = settings("both", old.text() + new.text())
    watch = Availability(cluster, name, 2)
    clients.append(watch)
    watch.start()
    before, meanwhile = Load("before", name, settings("old", old.text()), NO_ERROR), Load("meanwhile", name, both, NO_ERROR)
    after, reader = Load("after", name, settings("new", new.text()), NO_ERROR), Reader("reader", name, both, NO_ERROR)
    begun(before)
    begun(reader)
    # 1. All trust the new authority, too.
    subjects = {each: str(each.certificate.subject.rfc4514_string()) for each in (old, new)}
    stores.put_all(TRUSTSTORE, dict.fromkeys(cluster.brokers, old.text() + new.text()),
                   lambda broker_id: trusted(cluster, broker_id) == set(subjects.values()))  # fmt: skip
    before.until_more()
    before.end()
    begun(meanwhile)
    # 2. Certificates of the new authority.
    issued: dict[int, Issued] = {broker_id: new.issue(f"broker-{broker_id}") for broker_id in cluster.brokers}
    stores.put_all(KEYSTORE, {broker_id: each.key_pem() + each.chain_pem() for broker_id, each in issued.items()},
                   lambda broker_id: shown(cluster, broker_id) == issued[broker_id].der)  # fmt: skip
    meanwhile.until_more()
    begun(after)
    # 3. None trusts the old one any more.
    stores.put_all(TRUSTSTORE, dict.fromkeys(cluster.brokers, new.text()),
                   lambda broker_id: trusted(cluster, broker_id) == {subjects[new]})  # fmt: skip
    for client in (meanwhile, after, reader):
        client.until_more()
    meanwhile.end()
    after.end()
    reader.end(before.acknowledged | meanwhile.acknowledged | after.acknowledged)
    watch.end()
    # Connections from before go on. After a restart all of a broker are new, to it and from it.
    assert cluster.brokers[1].stop() == 0
    cluster.brokers[1].start()
    cluster.until_in_sync(name)
    with pytest.raises(ssl.SSLCertVerificationError):
        cluster.connect(1, "alice", OLD)


# A mechanism


def test_a_mechanism_is_replaced(cluster: SaslSslCluster, clients: list[Client], name: str) -> None:
    prefix = f"listener.name.{LISTENER.lower()}"

    def mechanisms(*enabled: str) -> dict[str, str]:
        jaas = {f"{prefix}.{each.lower()}.sasl.jaas.config": client_jaas(each, BROKER, PASSWORDS[BROKER]) for each in enabled}
        return {"sasl.enabled.mechanisms": ",".join(enabled), **jaas}

    cluster.first_mechanisms = (OLD,)
    for server in cluster.brokers.values():
        for mechanism in MODULES:
            server.overrides.pop(f"{prefix}.{mechanism.lower()}.sasl.jaas.config", None)
        server.overrides |= mechanisms(OLD)
    cluster.start()
    prepare(cluster, name)
    before, after = Load("before", name, cluster.librdkafka("alice", OLD)), Load("after", name, cluster.librdkafka("alice", NEW))
    readers = {each: Reader(f"reader {each}", name, cluster.librdkafka("alice", each)) for each in (OLD, NEW)}
    watch = Availability(cluster, name, 2)
    clients += [before, after, *readers.values(), watch]
    before.start()
    readers[OLD].start()
    watch.start()
    before.until_more()
    ready = lambda: is_in_sync(cluster, name)  # noqa: E731
    # 1. Credentials for the new mechanism, of the same passwords.
    for user in ("alice", BROKER):
        set_password(cluster, user, NEW)
    # 2. The brokers accept it.
    roll(cluster, ready, lambda broker_id: mechanisms(OLD, NEW))
    readers[OLD].until_more()
    # 3. The brokers use it, and then the clients.
    roll(cluster, ready, lambda broker_id: {"sasl.mechanism.inter.broker.protocol": NEW})
    readers[OLD].until_more()
    before.until_more()
    after.start()
    readers[NEW].start()
    after.until_more()
    before.end()
    readers[OLD].end(set(before.acknowledged))
    # 4. The brokers accept only the new one.
    for server in cluster.brokers.values():
        del server.overrides[f"{prefix}.{OLD.lower()}.sasl.jaas.config"]
    roll(cluster, ready, lambda broker_id: mechanisms(NEW))
    after.until_more()
    after.end()
    readers[NEW].end(before.acknowledged | after.acknowledged)
    watch.end()
    with pytest.raises(AssertionError):
        cluster.connect(1, "alice", OLD)
    cluster.connect(1, "alice", NEW).close()


def is_in_sync(cluster: SaslSslCluster, topic: str) -> bool:
    """Whether each broker that runs has all replicas in sync."""
    try:
        found = [cluster.topics(broker_id) for broker_id in cluster.brokers]
    except OSError:
        return False
    return all(topic in topics and all(state.in_sync for states in topics.values() for state in states.values()) for topics in found)
