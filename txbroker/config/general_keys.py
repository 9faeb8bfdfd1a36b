"""Keys of the broker itself, of new topics, quotas, policies and metrics."""

from __future__ import annotations

from txbroker.config.checks import at_least, kafka_version, one_of
from txbroker.config.keys import Importance, Key, Type, Update
from txbroker.platform import AUTO, LINUX, PORTABLE

KEYS = (
    Key("broker.id", Type.INT, -1, Importance.HIGH,
        "Id of this broker, the same as node.id. With -1 the broker generates an id and stores it in meta.properties.", at_least(-1)),
    Key("node.id", Type.INT, -1, Importance.HIGH,
        "Id of this broker, the same as broker.id.", at_least(-1)),
    Key("broker.id.generation.enable", Type.BOOLEAN, True, Importance.MEDIUM,
        "Whether a broker without an id generates one."),
    Key("txbroker.platform", Type.STRING, AUTO, Importance.LOW,
        "Functions of the operating system to use: linux (epoll, sendfile, reads that do not wait), or portable, those that macOS and "
        "Windows have, too; auto is linux where all of them are available.", one_of(AUTO, LINUX, PORTABLE)),
    Key("reserved.broker.max.id", Type.INT, 1000, Importance.MEDIUM,
        "Maximum value of broker.id. Generated ids are above it.", at_least(0)),
    Key("broker.rack", Type.STRING, None, Importance.MEDIUM,
        "Rack of this broker, used for rack-aware replica placement and by consumers that fetch from the nearest replica."),
    Key("num.partitions", Type.INT, 1, Importance.MEDIUM,
        "Number of partitions of topics that are created without one.", at_least(1)),
    Key("default.replication.factor", Type.INT, 1, Importance.MEDIUM,
        "Replication factor of topics that are created without one.", at_least(1)),
    Key("auto.create.topics.enable", Type.BOOLEAN, True, Importance.HIGH,
        "Whether to create a topic when a client requests its metadata and it does not exist."),
    Key("delete.topic.enable", Type.BOOLEAN, True, Importance.HIGH,
        "Whether topics can be deleted."),
    Key("create.topic.policy.class.name", Type.CLASS, None, Importance.LOW,
        "Class that validates CreateTopics requests.", effective=False),
    Key("alter.config.policy.class.name", Type.CLASS, None, Importance.LOW,
        "Class that validates AlterConfigs requests.", effective=False),
    Key("client.quota.callback.class", Type.CLASS, None, Importance.LOW,
        "Class that determines client quotas.", effective=False),
    Key("quota.window.num", Type.INT, 11, Importance.LOW,
        "Number of samples for client quotas.", at_least(1)),
    Key("quota.window.size.seconds", Type.INT, 1, Importance.LOW,
        "Length of each sample for client quotas, in seconds.", at_least(1)),
    Key("controller.quota.window.num", Type.INT, 11, Importance.LOW,
        "Number of samples for the quota of topic and partition changes; with the length of each, it limits how much of an unused rate "
        "can be used at once.", at_least(1)),
    Key("controller.quota.window.size.seconds", Type.INT, 1, Importance.LOW,
        "Length of each sample for the quota of topic and partition changes, in seconds.", at_least(1)),
    Key("metric.reporters", Type.LIST, (), Importance.LOW,
        "Classes that report metrics.", update=Update.CLUSTER_WIDE, effective=False),
    Key("metrics.num.samples", Type.INT, 2, Importance.LOW,
        "Number of samples for each metric.", at_least(1), effective=False),
    Key("metrics.sample.window.ms", Type.LONG, 30_000, Importance.LOW,
        "Length of each sample of a metric, in milliseconds.", at_least(1), effective=False),
    Key("metrics.recording.level", Type.STRING, "INFO", Importance.LOW,
        "Recording level of metrics: INFO, DEBUG or TRACE.", effective=False),
    Key("auto.include.jmx.reporter", Type.BOOLEAN, True, Importance.LOW,
        "Whether metrics are reported to JMX.", effective=False),
    Key("kafka.metrics.reporters", Type.LIST, (), Importance.LOW,
        "Classes that report Yammer metrics.", effective=False),
    Key("kafka.metrics.polling.interval.secs", Type.INT, 10, Importance.LOW,
        "Polling interval of kafka.metrics.reporters, in seconds.", at_least(1), effective=False),
    Key("telemetry.max.bytes", Type.INT, 1_048_576, Importance.LOW,
        "Maximum size of a client's telemetry push (KIP-714), in bytes.", at_least(1), effective=False),
    Key("inter.broker.protocol.version", Type.STRING, "3.9-IV0", Importance.MEDIUM,
        "Version of Kafka whose requests are used between brokers.", kafka_version, effective=False),
)
