from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num.partitions=0", "server.properties:1: num.partitions is '0'; it must be at least 1"),
        ("# x\n\nlog.segment.bytes = 1e6",
         "server.properties:3: log.segment.bytes is '1e6'; it must be a whole number from -2147483648 to 2147483647"),
        ("foo=1\nauto.create.topics.enable=yes", "server.properties:2: auto.create.topics.enable is 'yes'; it must be true or false"),
        ("compression.type=brotli",
         "server.properties:1: compression.type is 'brotli'; it must be one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("log.cleanup.policy=delete,\\\n  keep",
         "server.properties:1: log.cleanup.policy is 'delete,keep'; it must be a list of compact, delete"),
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
         "server.properties:1: authorizer.class.name is 'org.apache.kafka.metadata.authorizer.StandardAuthorizer'; "
         "it must be empty or kafka.security.authorizer.AclAuthorizer, the only authorizer of this broker"),
        ("super.users=User:a;bob",
         "server.properties:1: super.users is 'User:a;bob'; it must be a list of Type:name, separated by semicolons, "
         "such as User:admin;User:CN=broker,O=example"),
        ("super.users=User:a; ;bob",
         "server.properties:1: super.users is 'User:a; ;bob'; it must be a list of Type:name, separated by semicolons, "
         "such as User:admin;User:CN=broker,O=example"),
        ("remote.log.storage.system.enable=true",
         "server.properties:1: remote.log.storage.system.enable is 'true'; it must be false: tiered storage is not supported"),
        ("log.retention.hours=0", "server.properties:1: log.retention.hours is '0'; it must be at least 1, or -1"),
        ("broker.id=1\nnode.id=2",
         "server.properties:2: node.id is '2', but broker.id is '1' (server.properties:1); they must be the same"),
        ("broker.id=1001",
         "server.properties:1: broker.id is 1001; it must not be above reserved.broker.max.id (1000), as higher ids are generated"),
        ("process.roles=controller\nlisteners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER",
         "server.properties:1: process.roles is controller, but txbroker has no KRaft controller: do not start this process"),
        ("broker.id.generation.enable=false", "server.properties:1: broker.id must be set if broker.id.generation.enable is false"),
        ("log.dirs=,", "server.properties:1: log.dirs must have at least one directory"),
        ("log.dirs=/a,/b , /a", "server.properties:1: log.dirs names /a twice"),
        ("log.dir=", "server.properties:1: log.dirs must have at least one directory"),
        ("a=1\ngroup.max.session.timeout.ms=5000",
         "server.properties:2: group.min.session.timeout.ms is 6000; it must not be above group.max.session.timeout.ms (5000)"),
        ("queued.max.request.bytes=5",
         "server.properties:1: queued.max.request.bytes is 5; it must be at least socket.request.max.bytes (104857600), or -1"),
        ("max.connections.per.ip=0",
         "server.properties:1: max.connections.per.ip is 0, so max.connections.per.ip.overrides must be set, or no client could connect"),
        ("log.cleaner.threads=200",
         "server.properties:1: log.cleaner.dedupe.buffer.size is 134217728; it must be at least 1 MiB for each of "
         "log.cleaner.threads (200)"),
        ("zookeeper.connect=zk:port", "server.properties:1: zookeeper.connect is 'zk:port'; it must be HOST:PORT[,HOST:PORT...][/PATH]"),
        ("process.roles=broker\nzookeeper.connect=zk:2181",
         "server.properties:2: zookeeper.connect and process.roles are both set: remove process.roles to join the cluster on ZooKeeper, "
         "or the other"),
        ("zookeeper.connect=zk:2182\nzookeeper.set.acl=true",
         "server.properties:2: zookeeper.set.acl is true, but this broker does not authenticate to ZooKeeper: set "
         "txbroker.zookeeper.jaas.config for a login, or zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location for a "
         "certificate"),
        ("zookeeper.connect=zk:2182\ntxbroker.zookeeper.jaas.config=a.LoginModule required;",
         "server.properties:2: txbroker.zookeeper.jaas.config has the login module a.LoginModule; for ZooKeeper only "
         "org.apache.zookeeper.server.auth.DigestLoginModule is supported"),
        ("zookeeper.connect=zk:2182\nzookeeper.ssl.client.enable=true\nzookeeper.ssl.ocsp.enable=true",
         "server.properties:2: zookeeper.ssl.ocsp.enable is true, but txbroker does not check whether certificates are revoked: "
         "set it to false"),
        ("offsets.commit.required.acks=4",
         "server.properties:1: offsets.commit.required.acks is 4; it must be from -1 to offsets.topic.replication.factor (3)"),
    ],
)
def test_bad_values_stop_the_start_with_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        broker_config(text)
    assert str(caught.value) == message


def test_all_bad_values_are_reported() -> None:
    text = "num.partitions=three\nlog.segment.bytes=-1\nlisteners=TLS://:1\nlog.dirs=/a,/a\nqueued.max.request.bytes=5\nfetch.max.bytes=1"
    with pytest.raises(ConfigError) as caught:
        broker_config(text)
    assert [problem.partition("; ")[0].partition(",")[0] for problem in caught.value.problems] == [
        "server.properties:1: num.partitions is 'three'",
        "server.properties:2: log.segment.bytes is '-1'",
        "server.properties:6: fetch.max.bytes is '1'",
        "server.properties:4: log.dirs names /a twice",
        "server.properties:5: queued.max.request.bytes is 5",
        "server.properties:3: listeners has the listener TLS",
    ]
    assert str(caught.value) == "\n".join(caught.value.problems)


def test_a_bad_value_is_reported_once() -> None:
    """Not a second time as a conflict with another value."""
    with pytest.raises(ConfigError) as caught:
        broker_config("queued.max.request.bytes=x\nsocket.request.max.bytes=200000000\nlisteners=x\nadvertised.listeners=y://:1")
    assert len(caught.value.problems) == 2


def test_bad_values_of_overrides_name_the_override() -> None:
    with pytest.raises(ConfigError) as caught:
        broker_config("num.partitions=3", "num.partitions=x")
    assert str(caught.value).startswith("--override: num.partitions is 'x'; it must be a whole number")


def test_errors_do_not_contain_secrets() -> None:
    assert "hunter2" not in "".join(broker_config("ssl.keystore.password=hunter2").static.warnings)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("foo.bar=1", "server.properties:1: foo.bar is not a known key and is ignored"),
        ("\nlog.segment.byte=1",
         "server.properties:2: log.segment.byte is not a known key and is ignored (did you mean log.segment.bytes?)"),
        ("file.delete.delay.ms=1",
         "server.properties:1: file.delete.delay.ms is a key of topics and is ignored; use log.segment.delete.delay.ms"),
        ("retention.ms=1", "server.properties:1: retention.ms is a key of topics and is ignored; use log.retention.ms"),
        ("leader.replication.throttled.replicas=*",
         "server.properties:1: leader.replication.throttled.replicas is a key of topics and is ignored; set it with `txbroker configs`"),
        ("num.io.threads=9", "server.properties:1: num.io.threads is accepted, but has no effect on this broker"),
        ("num.io.threads=9\nzookeeper.metadata.migration.enable=true\nnum.network.threads=3",
         "num.io.threads (server.properties:1), zookeeper.metadata.migration.enable (server.properties:2) are accepted, but have no "
         "effect on this broker"),
        ("process.roles=broker", "server.properties:1: process.roles is accepted, but has no effect: "
         "this broker stores its metadata without KRaft"),
        ("zookeeper.clientCnxnSocket=a", "server.properties:1: zookeeper.clientCnxnSocket is accepted, but has no effect on this broker"),
        ("listener.name.external.max.connections=1",
         "server.properties:1: listener.name.external.max.connections is ignored: not a key that single listeners can have"),
        ("listener.name.a.max.connections=1\nlistener.name.b.log.dirs=/x",
         "listener.name.a.max.connections (server.properties:1), listener.name.b.log.dirs (server.properties:2) "
         "are ignored: not a key that single listeners can have"),
        ("listener.name.a.b.sasl.kerberos.service.name=x",
         "server.properties:1: listener.name.a.b.sasl.kerberos.service.name is accepted, but has no effect on this broker"),
        ("sasl.jaas.config=x",
         "server.properties:1: sasl.jaas.config is ignored: a broker reads listener.name.<listener>.<mechanism>.sasl.jaas.config, "
         "with names in lower case"),
        ("listener.name.a.sasl.jaas.config=x", "server.properties:1: listener.name.a.sasl.jaas.config is ignored: a broker reads "
         "listener.name.<listener>.<mechanism>.sasl.jaas.config, with names in lower case"),
    ],
)
def test_unknown_keys_and_keys_without_effect_give_warnings(text: str, warning: str) -> None:
    config = broker_config(text + "\nnum.partitions=7")
    assert config.static.warnings == (warning,)
    assert config.int("num.partitions") == 7


def test_the_configuration_provider_for_environment_variables_is_accepted() -> None:
    text = "config.providers=env\nconfig.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    assert broker_config(text).static.warnings == ()


def test_an_empty_configuration_is_valid() -> None:
    config = broker_config()
    assert config.static.warnings == ()
    assert config.text("listeners") == "PLAINTEXT://:9092"
    assert config.list("log.dirs") == ("/tmp/kafka-logs",)
    assert config.int("group.initial.rebalance.delay.ms") == 3000
    assert config.int("offsets.topic.replication.factor") == 3


def test_with_a_kraft_configuration_every_broker_id_is_allowed() -> None:
    assert broker_config("node.id=3000\nprocess.roles=broker,controller").int("broker.id") == 3000


def test_broker_id_and_node_id_are_the_same_key() -> None:
    for text in ("broker.id=7", "node.id=7", "broker.id=7\nnode.id= 7"):
        config = broker_config(text)
        assert (config.int("broker.id"), config.int("node.id")) == (7, 7)
    assert broker_config().int("broker.id") == -1
