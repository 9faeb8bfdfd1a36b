"""KAFKA_... environment variables, with the environments of well-known compose files."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from txbroker.config.advice import advice
from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.environment import FirstTopic, derived_listeners, key_of, parse_environment, parse_topics, variable_of
from txbroker.config.listeners import Listeners, parse_listeners
from txbroker.config.load import load_broker_config
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import ConfigError

# Variables of shells, images and Kubernetes.
ELSEWHERE = {
    "PATH": "/bin", "KAFKA_HOME": "/opt/kafka", "KAFKA_VERSION": "3.9.1", "KAFKA_OPTS": "-Dx", "KAFKA_HEAP_OPTS": "-Xmx256M",
    "KAFKA_JMX_PORT": "9999", "KAFKA_JMX_HOSTNAME": "localhost", "KAFKA_JVM_PERFORMANCE_OPTS": "", "KAFKA_GC_LOG_OPTS": " ",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO", "KAFKA_LOG4J_LOGGERS": "kafka=WARN", "KAFKA_LOG4J_OPTS": "-D",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL": "ERROR",
    "KAFKA_PORT": "tcp://10.0.0.1:9092", "KAFKA_SERVICE_HOST": "10.0.0.1", "KAFKA_SERVICE_PORT_CLIENT": "9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1", "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092", "KAFKA_ENABLE_KRAFT": "yes",
}  # fmt: skip

KAFKA_IMAGE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
}
BITNAMI_IMAGE = {
    "KAFKA_ENABLE_KRAFT": "yes",
    "KAFKA_KRAFT_CLUSTER_ID": "ehB92ChxEe2iYQAAAkKsEg",
    "KAFKA_CFG_NODE_ID": "0",
    "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
    "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094",
    "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094",
    "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@kafka:9093",
    "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "ALLOW_PLAINTEXT_LISTENER": "yes",
    "BITNAMI_DEBUG": "yes",
}
CONFLUENT_IMAGE = {
    "KAFKA_BROKER_ID": "1",
    "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
}
TESTCONTAINERS = {
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_NODE_ID": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://4f1c2b7a9d3e:9093",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
}


def read(variables: Mapping[str, str]) -> tuple[BrokerConfig, Listeners, list[str]]:
    """A configuration from the environment only, its listeners, and all warnings of a start."""
    environment = parse_environment(variables)
    config = load_broker_config({**environment.properties, **derived_listeners(environment.properties)})
    listeners = parse_listeners(config)
    return config, listeners, [*environment.warnings, *advice(config, listeners)]


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_CFG_LOG_DIRS", "log.dirs"),
        ("KAFKA_CONFIG_PROVIDERS", "config.providers"),
        ("KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientCnxnSocket"),
        ("KAFKA_LISTENER_NAME_CLIENT__TLS_SSL_KEYSTORE_LOCATION", "listener.name.client_tls.ssl.keystore.location"),
        ("KAFKA_LISTENER_NAME_SASL___SSL_SSL_KEYSTORE_LOCATION", "listener.name.sasl-ssl.ssl.keystore.location"),
        ("KAFKA_", None),
        ("KAFKA_CFG_", None),
        ("KAFKACFG_LOG_DIRS", None),
        ("CLUSTER_ID", None),
        ("KAFKA_CREATE_TOPICS", None),
        ("kafka_log_dirs", None),
    ],
)
def test_names(variable: str, key: str | None) -> None:
    assert key_of(variable) == key


def test_every_key_has_its_variable() -> None:
    for key in BROKER_KEYS:
        name = key.upper().replace("_", "__").replace("-", "___").replace(".", "_")
        assert key_of(f"KAFKA_{name}") == key_of(f"KAFKA_CFG_{name}") == key


def test_unsupported_user_variables_are_reported() -> None:
    environment = parse_environment({"KAFKA_CLIENT_USERS": "a", "KAFKA_CLIENT_PASSWORDS": "hunter2"})
    (warning,) = environment.warnings
    assert warning == "environment: KAFKA_CLIENT_PASSWORDS, KAFKA_CLIENT_USERS are not known keys and are ignored"


def test_variables_of_other_programs_are_ignored() -> None:
    environment = parse_environment(ELSEWHERE)
    assert (dict(environment.properties), environment.warnings) == ({}, ())


def test_unknown_names_are_one_warning() -> None:
    environment = parse_environment({"KAFKA_LOG_DIR": "/a", "KAFKA_NUM_PARTITONS": "3", "KAFKA_MY_SECRET": "hunter2"})
    assert list(environment.properties) == ["log.dir"]
    (warning,) = environment.warnings
    assert warning == (
        "environment: KAFKA_MY_SECRET, KAFKA_NUM_PARTITONS (did you mean KAFKA_NUM_PARTITIONS?) are not known keys and are ignored"
    )


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("KAFKA_LOG_RETENTION_HOUR", "KAFKA_LOG_RETENTION_HOURS"),
        ("KAFKA_CFG_NUM_PARTITIONSS", "KAFKA_CFG_NUM_PARTITIONS"),
        ("KAFKA_FILE_DELETE_DELAY_MS", "KAFKA_LOG_SEGMENT_DELETE_DELAY_MS"),
        ("KAFKA_INTER_BROKER_LISTENERS_NAME", "KAFKA_INTER_BROKER_LISTENER_NAME"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(variable: str, suggestion: str) -> None:
    (warning,) = parse_environment({variable: "1"}).warnings
    assert warning == f"environment: {variable} (did you mean {suggestion}?) is not a known key and is ignored"


def test_the_variable_of_a_key_sets_it() -> None:
    assert {key_of(variable_of(key)) for key in BROKER_KEYS} == set(BROKER_KEYS)
    assert {key_of(variable_of(key, "KAFKA_CFG_")) for key in BROKER_KEYS} == set(BROKER_KEYS)


def test_a_bad_value_names_its_variable() -> None:
    with pytest.raises(ConfigError, match=r"^environment variable KAFKA_NUM_PARTITIONS: num\.partitions is 'x'; it must be a whole number"):
        read({"KAFKA_NUM_PARTITIONS": "x"})


def test_bitnamis_prefix_has_precedence() -> None:
    variables = {"KAFKA_CFG_NUM_PARTITIONS": "2", "KAFKA_NUM_PARTITIONS": "1"}
    config, _, _ = read(variables)
    assert config.int("num.partitions") == 2
    assert str(config.static.origins["num.partitions"]) == "environment variable KAFKA_CFG_NUM_PARTITIONS"


@pytest.mark.parametrize("more", [{}, ELSEWHERE], ids=["alone", "with others"])
def test_the_compose_file_of_kafkas_image(more: Mapping[str, str]) -> None:
    config, listeners, warnings = read({**KAFKA_IMAGE, **more})
    assert config.int("broker.id") == 1
    assert [str(listener) for listener in listeners.bound] == ["PLAINTEXT_HOST://:9092", "PLAINTEXT://:19092"]
    assert {name: str(one) for name, one in listeners.advertised.items()} == {
        "PLAINTEXT_HOST": "PLAINTEXT_HOST://localhost:9092", "PLAINTEXT": "PLAINTEXT://broker:19092",
    }
    assert listeners.inter_broker == "PLAINTEXT"
    assert parse_environment(KAFKA_IMAGE).cluster_id == "4L6g3nShT-eMCtK--X86sw"
    text = "\n".join(warnings)
    assert len(warnings) <= 4, text
    assert "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR is not a known key and is ignored" in text
    assert "process.roles (environment variable KAFKA_PROCESS_ROLES)" in text
    assert "this broker stores its metadata without KRaft" in text
    assert "environment variable KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER://:29093 is not opened: " in text


def test_bitnamis_compose_file() -> None:
    config, listeners, _ = read(BITNAMI_IMAGE)
    assert config.int("broker.id") == 0
    assert [listener.name for listener in listeners.bound] == ["PLAINTEXT", "EXTERNAL"]
    assert listeners.inter_broker == "PLAINTEXT"
    assert parse_environment(BITNAMI_IMAGE).cluster_id == "ehB92ChxEe2iYQAAAkKsEg"


def test_confluents_compose_file_has_no_listeners() -> None:
    """Its image derives them from advertised.listeners, as Apache's does."""
    config, listeners, _ = read(CONFLUENT_IMAGE)
    assert [str(listener) for listener in listeners.bound] == ["PLAINTEXT://0.0.0.0:29092", "PLAINTEXT_HOST://0.0.0.0:9092"]
    assert str(config.static.origins["listeners"]) == "advertised.listeners, environment variable KAFKA_ADVERTISED_LISTENERS"


def test_testcontainers() -> None:
    _, listeners, _ = read(TESTCONTAINERS)
    assert [listener.name for listener in listeners.bound] == ["PLAINTEXT", "BROKER"]
    assert listeners.inter_broker == "BROKER"


def test_the_configuration_of_a_cluster_gives_a_warning() -> None:
    voters = {"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093"}
    _, _, warnings = read({**KAFKA_IMAGE, **voters})
    assert any("has 3 members, but this broker does not join a KRaft quorum: it is a separate cluster" in warning for warning in warnings)


def test_listeners_are_derived_only_when_missing() -> None:
    assert derived_listeners(parse_environment({"KAFKA_LISTENERS": "A://:1", "KAFKA_ADVERTISED_LISTENERS": "A://h:1"}).properties) == {}
    assert derived_listeners({}) == {}
    six = derived_listeners(parse_environment({"KAFKA_ADVERTISED_LISTENERS": "A://[::1]:1,B://h:2,C://:3"}).properties)
    assert six["listeners"].text == "A://0.0.0.0:1,B://0.0.0.0:2,C://0.0.0.0:3"


@pytest.mark.parametrize("text", ["a b", "x" * 100, "../x", "a\nversion=1"])
def test_an_invalid_cluster_id(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^environment variable CLUSTER_ID is "):
        parse_environment({"CLUSTER_ID": text})


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("", ()),
        (" , ", ()),
        ("a:1:1", (FirstTopic("a", 1, 1),)),
        ("Topic1:1:3,Topic2:4:1:compact", (FirstTopic("Topic1", 1, 3), FirstTopic("Topic2", 4, 1, "compact"))),
        ("a:1:1:compact,delete,b.c_d-e:2:1", (FirstTopic("a", 1, 1, "compact,delete"), FirstTopic("b.c_d-e", 2, 1))),
        ("a:1:1\n  b:2:1 c:3:1,\n", (FirstTopic("a", 1, 1), FirstTopic("b", 2, 1), FirstTopic("c", 3, 1))),
    ],
)
def test_topics_to_create(text: str, topics: tuple[FirstTopic, ...]) -> None:
    assert parse_topics(text) == topics


@pytest.mark.parametrize("text", ["a", "a:1", "a:x:1", "a:1:1:DELETE", ":1:1", "a/b:1:1", "a:1:1:", "a:1:1,b", "a:99999999:1"])
def test_malformed_lists_of_topics(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^environment variable KAFKA_CREATE_TOPICS has '.*', which is not name:partitions:replicas"):
        parse_topics(text)
