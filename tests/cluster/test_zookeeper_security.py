"""Brokers that log in at ZooKeeper by SASL or with a certificate, and the access control lists of what they create there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from tests.config.configs import broker_config
from tests.support import java
from tests.support.acls import ADMIN, ALL, ALLOW, ANYONE, AUTHORIZER, LITERAL, OPEN, TOPIC, Acl, create_acls
from tests.support.broker import BrokerProcess
from tests.support.cache import KAFKA_OLD
from tests.support.certificates import PASSWORD, Authority
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember
from tests.support.raw_admin import create_topic
from tests.support.secure_zookeeper import SecureZooKeeper, access, client, login
from tests.support.server import ServerFailed
from tests.support.waiting import until
from txbroker.cluster.tree.zookeeper_security import ZooKeeperSecurity, of_json, read_security
from txbroker.config.zookeeper_login import ZooKeeperLogin
from txbroker.errors import StartError

SECRETS = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/txbroker_secret")
OWN = "/cluster/txbroker_refused_connections"
OWN_SECRET = "/cluster/txbroker_secret"
Start = Callable[..., BrokerProcess]


def expected(paths: set[str], chroot: str, identity: str) -> dict[str, set[str]]:
    """What Kafka's brokers set for these nodes."""
    found = {}
    for path in paths:
        below = path.removeprefix(chroot)
        if below == "/consumers":
            found[path] = {"world:anyone:31"}
        else:
            found[path] = {f"{identity}:31"} | (set() if below.startswith(SECRETS) else {"world:anyone:1"})
    return found


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecureZooKeeper]:
    process = SecureZooKeeper(tmp_path_factory.mktemp("zookeeper"), authority.issue("zookeeper").pem(), authority.pem())
    process.start()
    yield process
    process.kill()


def with_login(zookeeper: SecureZooKeeper, chroot: str, user: str = "kafka", **more: str) -> dict[str, str]:
    return {"broker.id": "1", "zookeeper.connect": f"{zookeeper.address}/{chroot}", "zookeeper.set.acl": "true",
            "txbroker.zookeeper.jaas.config": login(user), **{key.replace("_", "."): value for key, value in more.items()}}  # fmt: skip


@pytest.mark.process
@pytest.mark.extended
def test_a_broker_logs_in_and_protects_its_nodes(start_broker: Start, zookeeper: SecureZooKeeper, name: str, tmp_path: Path) -> None:
    server = start_broker({**with_login(zookeeper, name), **OPEN})
    create_topic(server, "t")
    create_acls(server.address, [Acl(TOPIC, "t", LITERAL, ANYONE, ADMIN, ALL, ALLOW)])
    java.run("kafka-configs", "--bootstrap-server", server.address, "--alter", "--entity-type", "users", "--entity-name", "alice",
             "--add-config", "SCRAM-SHA-512=[password=alice-secret]")  # fmt: skip
    with client(zookeeper.address, "kafka") as kafka:
        found = {path: acls for path, acls in access(kafka).items() if path.split("/")[1] == name}
    assert found == expected(set(found), f"/{name}", "sasl:kafka")
    known = ("/config/users/alice", "/kafka-acl/Topic/t", "/brokers/topics/t", "/controller")
    assert {f"/{name}{below}" for below in known} <= found.keys()
    # The process that ends the session of a killed broker logs in, too, and so does the start after it.
    server.kill()
    until(lambda: "is closed" in server.log(), "the session is closed")
    server.start()
    # Another identity: the nodes of users are not for it.
    other = BrokerProcess(tmp_path / "other", {**with_login(zookeeper, name, "other", broker_id="2")})
    with pytest.raises(ServerFailed):
        other.start()
    text = f"ZooKeeper refuses the operation on node /{name}/"
    assert text in other.log() and "(NoAuth): authenticate to ZooKeeper as the brokers that have created it" in other.log()
    assert "zk" + '"secret' not in server.log() and "other-secret" not in other.log()
    other.close()


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.parametrize("requires_login", [False, True])
def test_a_login_that_fails(tmp_path: Path, requires_login: bool, zookeeper: SecureZooKeeper) -> None:
    if requires_login:
        zookeeper = SecureZooKeeper(tmp_path / "zookeeper", requires_login=True)
        zookeeper.start()
    settings = with_login(zookeeper, "unserved")
    wrong = BrokerProcess(tmp_path / "wrong", {**settings, "txbroker.zookeeper.jaas.config": login("kafka", "a guess")})
    with pytest.raises(ServerFailed):
        wrong.start()
    said = wrong.log()
    assert "it refuses the login of 'kafka'; correct the user or the password" in said
    assert "a guess" not in said and "Traceback" not in said
    wrong.close()
    if requires_login:
        without = BrokerProcess(tmp_path / "without", {"zookeeper.connect": settings["zookeeper.connect"]})
        with pytest.raises(ServerFailed):
            without.start()
        assert "ZooKeeper" in without.log() and "txbroker.zookeeper.jaas.config" in without.log()
        without.close()
        zookeeper.kill()


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_a_certificate_is_an_identity(
    start_broker: Start, zookeeper: SecureZooKeeper, authority: Authority, name: str, kind: str
) -> None:
    own = authority.issue("broker")
    key, trusted = {
        "PEM": lambda: (own.pem(), authority.pem()),
        "JKS": lambda: (own.jks(), authority.truststore("JKS")),
        "PKCS12": lambda: (own.pkcs12(), authority.truststore("PKCS12")),
    }[kind]()
    secrets = {} if kind == "PEM" else {"zookeeper.ssl.keystore.password": PASSWORD, "zookeeper.ssl.truststore.password": PASSWORD,
                                        "zookeeper.ssl.truststore.type": kind}  # fmt: skip
    server = start_broker({
        "broker.id": "1", "zookeeper.connect": f"{zookeeper.host}:{zookeeper.secure_port}/{name}", "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true", "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": str(key), "zookeeper.ssl.truststore.location": str(trusted),
        "zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv1.3", **secrets,
    })  # fmt: skip
    create_topic(server, "t")
    server.kill()
    until(lambda: "is closed" in server.log(), "the guard has closed the session")
    with client(zookeeper.address, "kafka") as kafka:
        found = {f"{acl.id.scheme}:{acl.id.id}:{acl.perms}" for acl in kafka.get_acls(f"/{name}/brokers/topics/t")[0]}
    assert found == {"x509:CN=broker,O=Test:31", "world:anyone:1"}


class SecuredCluster(Cluster):
    """Brokers of both kinds that log in at ZooKeeper as one user."""

    def __init__(self, directory: Path, kinds: tuple[str, ...]) -> None:
        super().__init__(directory, kinds, {**AUTHORIZER, "super.users": ANYONE, "zookeeper.set.acl": "true"})
        zookeeper = SecureZooKeeper(directory / "secure-zookeeper")
        zookeeper.port = self.zookeepers[1].port
        self.zookeepers[1] = zookeeper
        self.jaas = directory / "client.jaas"
        self.jaas.write_text(f"Client {{ {login('kafka')} }};\n")
        for server in self.brokers.values():
            if isinstance(server, KafkaMember):
                server.java_options = (*server.java_options, f"-Djava.security.auth.login.config={self.jaas}")
            else:
                server.overrides["txbroker.zookeeper.jaas.file"] = str(self.jaas)

    def migrate(self, acl: str) -> None:
        """Kafka's tool for a tree that exists."""
        java.run("zookeeper-security-migration", f"--zookeeper.acl={acl}", f"--zookeeper.connect={self.zookeeper_connect}",
                 release=KAFKA_OLD, options=(*java.SHORT_LIVED, f"-Djava.security.auth.login.config={self.jaas}"))  # fmt: skip


@pytest.mark.process
@pytest.mark.extended
def test_a_mixed_cluster_protects_its_nodes_alike(server_directory: Path, name: str) -> None:
    cluster = SecuredCluster(server_directory / name, (BrokerProcess.kind, KafkaMember.kind))
    try:
        cluster.start()
        cluster.create_topic("t", partitions=2, replication_factor=2)
        for number, server in cluster.brokers.items():
            create_acls(server.address, [Acl(TOPIC, f"t{number}", LITERAL, ANYONE, ADMIN, ALL, ALLOW)])
            java.run("kafka-configs", "--bootstrap-server", server.address, "--alter", "--entity-type", "users",
                     "--entity-name", f"user{number}", "--add-config", "SCRAM-SHA-512=[password=secret]")  # fmt: skip
            java.run("kafka-configs", "--bootstrap-server", server.address, "--alter", "--entity-type", "brokers",
                     "--entity-name", str(number), "--add-config", "log.cleaner.threads=2")  # fmt: skip
        with client(cluster.zookeepers[1].address, "kafka") as kafka:
            found = access(kafka)
            assert found == expected(set(found), "/cluster", "sasl:kafka")
            cluster.migrate("unsecure")
            opened = access(kafka)
            assert {path for path, acls in opened.items() if acls != {"world:anyone:31"}} == {OWN}, "Kafka's tool does not know it"
            kafka.set_acls(OWN, OPEN_ACL_UNSAFE)  # a tree that was made without zookeeper.set.acl
            kafka.create(OWN_SECRET, b"00" * 32)
            cluster.migrate("secure")
            assert cluster.brokers[1].stop() == 0
            cluster.start_brokers([1])
            secured = access(kafka)
            assert {path: acls for path, acls in secured.items() if path in found} == {p: found[p] for p in found.keys() & secured.keys()}
            assert secured[OWN] == found[OWN]
            assert secured[OWN_SECRET] == {"sasl:kafka:31"}, "only brokers read it"
        cluster.create_topic("after", partitions=1, replication_factor=2)
    finally:
        cluster.close()


def read(**settings: str) -> ZooKeeperSecurity:
    lines = {"zookeeper.connect": "zk:2182", **{key.replace("__", "."): value for key, value in settings.items()}}
    return read_security(broker_config("".join(f"{key}={value}\n" for key, value in lines.items())))


TLS = {"zookeeper.ssl.client.enable": "true"}


def test_keys_of_tls_are_those_of_kafka(tmp_path: Path) -> None:
    assert read() == ZooKeeperSecurity(None, None)
    found = read(**TLS).tls
    assert found is not None
    assert (found.keystore, found.truststore, found.protocols, found.suites, found.verifies_host) == (None, None, ("TLSv1.2",), None, True)
    stores = {"zookeeper.ssl.keystore.location": "/a/own.p12", "zookeeper.ssl.keystore.password": "one",
              "zookeeper.ssl.truststore.location": "/a/trusted.JKS", "zookeeper.ssl.truststore.password": "two"}  # fmt: skip
    suites = {"zookeeper.ssl.protocol": "TLS", "zookeeper.ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
    security = read(**TLS, **stores, **suites, **{"zookeeper.ssl.endpoint.identification.algorithm": ""})
    found = security.tls
    assert found is not None and found.keystore is not None and found.truststore is not None
    assert found.keystore[:4] == ("keystore", "PKCS12", "/a/own.p12", "one") and found.key_password == "one"
    assert found.truststore[:4] == ("truststore", "JKS", "/a/trusted.JKS", "two")
    assert (found.protocols, found.verifies_host) == (("TLSv1.2",), False), "no suite of TLS 1.3 is enabled"
    whole = security._replace(login=ZooKeeperLogin("kafka", "secret"))
    assert of_json(json.loads(json.dumps(whole))) == whole, "for the process that ends sessions"
    assert read(**TLS, **{"zookeeper.ssl.enabled.protocols": "TLSv1.3"}).tls.protocols == ("TLSv1.3",)  # type: ignore[union-attr]
    pem = read(**TLS, **stores, **{"zookeeper.ssl.keystore.type": "pem"}).tls
    assert pem is not None and pem.keystore is not None
    assert (pem.keystore.kind, pem.keystore.password, pem.key_password) == ("PEM", None, "one"), "the password is that of the key"


def problem(**settings: str) -> str:
    with pytest.raises(StartError) as raised:
        read(**settings).context()
    return str(raised.value)


def test_what_cannot_be_used_is_named_by_its_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("broker")
    own_key, password = "zookeeper.ssl.keystore.location", {"zookeeper.ssl.keystore.password": "guess"}
    line = "server.properties:3: "
    assert problem(**TLS, **{"zookeeper.ssl.keystore.type": "BCFKS", own_key: "a"}) == (
        f"{line}zookeeper.ssl.keystore.type is BCFKS; it must be JKS, PKCS12 or PEM")
    assert problem(**TLS, **{"zookeeper.ssl.protocol": "SSLv3"}) == (
        f"{line}zookeeper.ssl.enabled.protocols has SSLv3; supported are TLSv1.2 and TLSv1.3")
    assert problem(**TLS, **{own_key: "/none.pem"}) == (
        "zookeeper.ssl.keystore.location is /none.pem, which cannot be read: No such file or directory")
    for each in (own.pem("secret"), own.pkcs12()):
        said = problem(**TLS, **{own_key: str(each)}, **password)
        assert str(each) in said and "zookeeper.ssl.keystore.password" in said, said
        assert " ssl." not in said and "guess" not in said
    said = problem(**TLS, **{own_key: str(authority.pem())})
    assert said.startswith(f"{own_key} is {authority.pem()}, which cannot be used: it has no private key")


def test_logins(tmp_path: Path) -> None:
    expected = ZooKeeperLogin("kafka", 'zk"secret')
    assert read(**{"txbroker.zookeeper.jaas.config": login("kafka").replace("\\", "\\\\")}).login == expected
    file = tmp_path / "kafka.jaas"
    server = 'KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b"; };\n'
    file.write_text(f"// Kafka's file\n{server}Client {{\n  {login('kafka')}\n}};\n")
    named = {"txbroker.zookeeper.jaas.file": str(file)}
    assert read(**named).login == expected
    key = f"server.properties:2: txbroker.zookeeper.jaas.file is {file}, which"
    for text, said in {
        server: "has no section Client",
        f"Client {{ {login('kafka')} }}": "has no `};` at the end of the section Client",
        f"Client {{ {login('kafka')} }}; Client {{ {login('kafka')} }};": "has the section Client twice",
        "Client { };": "must have one login module in the section Client, and has none",
        "required;": "does not consist of sections; write `Name { ... };`",
    }.items():
        file.write_text(text)
        assert problem(**named) == f"{key} {said}"
    file.write_text("Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };")
    assert problem(**named).endswith(
        "txbroker.zookeeper.jaas.file has the login module com.sun.security.auth.module.Krb5LoginModule; for ZooKeeper only "
        "org.apache.zookeeper.server.auth.DigestLoginModule is supported")
    inline = {"txbroker.zookeeper.jaas.config": login("kafka")}
    assert "are both set; remove one of them" in problem(**named, **inline)
    assert "which cannot be read: No such file" in problem(**{"txbroker.zookeeper.jaas.file": str(tmp_path / "none")})
    without = {"txbroker.zookeeper.jaas.config": "org.apache.zookeeper.server.auth.DigestLoginModule required username=kafka;"}
    assert "has no username and password" in problem(**without)
