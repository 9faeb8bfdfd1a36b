"""`KAFKA_...` environment variables of Kafka's container images, translated into properties.

The rule is that of Apache Kafka's image (KafkaDockerWrapper): after the prefix, `_` is a dot, `__` an underscore and `___` a dash, so
KAFKA_LOG_DIRS is log.dirs. `KAFKA_CFG_` is Bitnami's prefix. `CLUSTER_ID` is the cluster id for a new log directory, and
`KAFKA_CREATE_TOPICS` (wurstmeister's image) has the topics to create at the start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.properties import Origin, Property
from txbroker.config.static import similar_key
from txbroker.errors import ConfigError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import amount

PREFIX = "KAFKA_"
BITNAMI_PREFIX = "KAFKA_CFG_"
CLUSTER_ID_VARIABLES = ("CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID")
CREATE_TOPICS_VARIABLE = "KAFKA_CREATE_TOPICS"

# Variables for images and scripts: the JVM, its logging, Kafka's directories.
_NOT_FOR_US = re.compile(
    r"KAFKA_(HOME|VERSION|OPTS|ARGS|DEBUG|USER|GROUP|CLUSTERS?|(HEAP|LOG4J|JMX|GC_LOG|JVM_PERFORMANCE|EXTRA|TOOLS)_.*|HEAP_OPT"
    r"|JMX.*|GC_.*|LOG4J.*|(BASE|BIN|CONF|CERTS|VOLUME|DATA|INITSCRIPTS|MOUNTED_CONF|DEFAULT_CONF)_DIR|CONF_FILE"
    r"|ENABLE_KRAFT|SKIP_KRAFT_STORAGE_INIT|DAEMON_(USER|GROUP)|ON_KUBERNETES"
    r"|SERVICE_(HOST|PORT)(_.*)?|PORT(_[0-9]+_TCP(_.*)?)?)"  # the last line: set by Kubernetes for a service named "kafka"
)
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}={0,2}", re.ASCII)  # Kafka's have 22 characters; padding is common
_TOPIC = re.compile(
    r"(?P<name>[a-zA-Z0-9._-]{1,249}):(?P<partitions>[0-9]{1,6}):(?P<replicas>[0-9]{1,5})(?::(?P<policy>[a-z,_]+))?", re.ASCII
)
TOPICS_MAX = 10_000


@lazy_dataclass(frozen=True, slots=True)
class FirstTopic:
    """A topic to create at the start; `cleanup_policy` None is the broker's default."""

    name: str
    partitions: int
    replicas: int
    cleanup_policy: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class Environment:
    """The result of reading the environment. `warnings`: a sentence for each kind of ignored variable."""

    properties: Mapping[str, Property]
    cluster_id: str | None = None
    topics: tuple[FirstTopic, ...] = ()
    warnings: tuple[str, ...] = ()


NO_ENVIRONMENT = Environment({})


def parse_environment(variables: Mapping[str, str]) -> Environment:
    """Read the `KAFKA_...` variables; ConfigError if CLUSTER_ID or KAFKA_CREATE_TOPICS is malformed.

    Variables for unknown keys are ignored with a warning. If a key is set with both prefixes, Bitnami's is used.
    """
    properties: dict[str, Property] = {}
    unknown: list[str] = []
    for variable in sorted(variables, key=lambda name: (name.startswith(BITNAMI_PREFIX), name)):
        key = key_of(variable)
        if key is None:
            continue
        if key in BROKER_KEYS or _is_nested(key):
            properties[key] = Property(variables[variable], origin(variable))
        else:
            unknown.append(variable)
    warnings = []
    if unknown:
        what = "is not a known key and is ignored" if len(unknown) == 1 else "are not known keys and are ignored"
        warnings.append(f"environment: {', '.join(map(_with_suggestion, unknown))} {what}")
    return Environment(properties, _cluster_id(variables), parse_topics(variables.get(CREATE_TOPICS_VARIABLE, "")), tuple(warnings))


def origin(variable: str) -> Origin:
    """The place of a value from a variable."""
    return Origin(f"environment variable {variable}")


def key_of(variable: str) -> str | None:
    """The key of a variable; None if it is not one of Kafka's, or is for images and scripts."""
    if variable.startswith(BITNAMI_PREFIX):
        rest = variable.removeprefix(BITNAMI_PREFIX)
    elif variable.startswith(PREFIX) and not _NOT_FOR_US.fullmatch(variable):
        rest = variable.removeprefix(PREFIX)
    else:
        return None
    if not rest or variable in CLUSTER_ID_VARIABLES or variable == CREATE_TOPICS_VARIABLE:
        return None
    key = rest.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
    return _SPELLINGS.get(key, key)


def variable_of(key: str, prefix: str = PREFIX) -> str:
    """The variable that sets a key."""
    return prefix + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _with_suggestion(variable: str) -> str:
    """The variable, with the known one that it resembles."""
    key = similar_key(key_of(variable) or "")
    prefix = BITNAMI_PREFIX if variable.startswith(BITNAMI_PREFIX) else PREFIX
    return variable if key is None else f"{variable} (did you mean {variable_of(key, prefix)}?)"


# zookeeper.clientCnxnSocket is the only key with upper-case letters.
_SPELLINGS = {name.lower(): name for name in BROKER_KEYS}
_NESTED_PREFIXES = ("listener.name.", "config.providers")


def _is_nested(key: str) -> bool:
    """Whether a part of the key's name is chosen by the operator."""
    return key.startswith(_NESTED_PREFIXES)


def derived_listeners(properties: Mapping[str, Property]) -> dict[str, Property]:
    """`listeners`, if only advertised.listeners is set: the same ports on all addresses, as in the images of Apache and Confluent."""
    advertised = properties.get("advertised.listeners")
    if advertised is None or not advertised.text.strip() or "listeners" in properties:
        return {}
    text = re.sub(r"://(\[[^\]]*\]|[^:,\[]*):", "://0.0.0.0:", advertised.text)
    return {"listeners": Property(text, Origin(f"advertised.listeners, {advertised.origin}"))}


def _cluster_id(variables: Mapping[str, str]) -> str | None:
    for variable in CLUSTER_ID_VARIABLES:
        text = variables.get(variable, "").strip()
        if text and _CLUSTER_ID.fullmatch(text) is None:
            allowed = "up to 64 letters, digits, dashes and underscores"
            raise ConfigError(f"{origin(variable)} is '{text[:80]}'; a cluster id has {allowed}")
        if text:
            return text
    return None


def parse_topics(text: str) -> tuple[FirstTopic, ...]:
    """Parse `name:partitions:replicas[:cleanup.policy]`, separated by commas, blanks or newlines; ConfigError."""
    # In "compact,delete" the comma separates no topics: a part without a colon belongs to the one before it.
    parts = [part.strip() for part in re.split(r"[\s,]+(?=[^\s,:]+:)", text.strip(" ,\t\r\n")) if part.strip(" ,")]
    if len(parts) > TOPICS_MAX:
        raise ConfigError(f"{origin(CREATE_TOPICS_VARIABLE)} has {amount(len(parts), 'topic')}; the maximum is {TOPICS_MAX:,}")
    topics = []
    for part in parts:
        match = _TOPIC.fullmatch(part)
        if match is None:
            raise ConfigError(f"{origin(CREATE_TOPICS_VARIABLE)} has '{part[:80]}', which is not name:partitions:replicas[:cleanup.policy]")
        topics.append(FirstTopic(match["name"], int(match["partitions"]), int(match["replicas"]), match["policy"]))
    return tuple(topics)
