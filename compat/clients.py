"""The folders of the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat.matrix import CLIENTS as LIBRARIES
from compat.matrix import FEATURES, TOOLS

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Client:
    """A folder with a driver, its name in the table, and a version other than the one that its `run` names."""

    folder: str
    title: str
    version: str | None = None
    kind: str = LIBRARIES

    @property
    def features(self) -> Sequence[str]:
        """Its features, in the order of the table."""
        return FEATURES[self.kind]

    @property
    def program(self) -> Path:
        """The command that runs its driver."""
        return HERE / self.folder / "run"


# Two releases of one client are two rows.
CLIENTS: Mapping[str, Client] = {
    "kafka_python": Client("kafka_python", "kafka-python"),
    "confluent_kafka": Client("confluent_kafka", "confluent-kafka"),
    "aiokafka": Client("aiokafka", "aiokafka"),
    "kcat": Client("kcat", "kcat"),
    "java_2_8_2": Client("java", "Java 2.8", "2.8.2"),
    "java_3_9_1": Client("java", "Java 3.9", "3.9.1"),
    "java_4_3_1": Client("java", "Java 4.3", "4.3.1"),
    "kafkajs": Client("kafkajs", "kafkajs"),
    "platformatic": Client("platformatic", "@platformatic/kafka"),
    "franz_go": Client("franz_go", "franz-go"),
    "sarama": Client("sarama", "sarama"),
    "kafka_go": Client("kafka_go", "kafka-go"),
    "spark": Client("spark", "Spark"),
    "tools_3_9_1": Client("tools", "Kafka's tools 3.9", "3.9.1", TOOLS),
    "tools_4_3_1": Client("tools", "Kafka's tools 4.3", "4.3.1", TOOLS),
}
