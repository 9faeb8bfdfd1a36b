"""`KafkaMixin`: a broker for the tests of a unittest.TestCase."""

from __future__ import annotations

import atexit
import json
import unittest
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from txbroker.testing.kafka import Kafka
from txbroker.testing.namespaces import Namespace

_brokers: dict[str, Kafka] = {}


if TYPE_CHECKING:
    _Base = unittest.TestCase
else:
    _Base = object


class KafkaMixin(_Base):
    """`class MyTest(KafkaMixin, unittest.TestCase)`: `self.kafka` is a broker, `self.namespace` has names of the test's own.

    All classes of a process that have the same `kafka_settings` share one broker, which ends with the process.
    """

    kafka: ClassVar[Kafka]
    kafka_settings: ClassVar[Mapping[str, object]] = {}
    namespace: Namespace

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.kafka = _broker(cls.kafka_settings)

    def setUp(self) -> None:
        super().setUp()
        self.namespace = self.kafka.namespace(self._testMethodName)
        self.addCleanup(self.namespace.close)
        self.addCleanup(self.kafka.end_rules)


def _broker(settings: Mapping[str, object]) -> Kafka:
    key = json.dumps(sorted((name, str(value)) for name, value in settings.items()))
    if key not in _brokers:
        kafka = Kafka(settings=settings).start()
        atexit.register(kafka.close)
        _brokers[key] = kafka
    return _brokers[key]
