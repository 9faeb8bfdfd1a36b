"""`KafkaMixin`: a broker for the tests of a unittest.TestCase."""

from __future__ import annotations

import atexit
import json
import unittest
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from txbroker.testing.kafka import Kafka
from txbroker.testing.namespaces import Namespace
from txbroker.testing.secured import PLAINTEXT

_brokers: dict[str, Kafka] = {}


if TYPE_CHECKING:
    _Base = unittest.TestCase
else:
    _Base = object


class _BrokerOfClass:
    """The broker of a class, which starts when it is first asked for: Twisted's trial does not call setUpClass."""

    def __get__(self, test: object, cls: Any) -> Kafka:
        return _broker(cls.kafka_settings, cls.kafka_as_version, cls.kafka_security)


class KafkaMixin(_Base):
    """`class MyTest(KafkaMixin, unittest.TestCase)`: `self.kafka` is a broker, `self.namespace` has names of the test's own.

    `kafka_settings`, `kafka_as_version` and `kafka_security` are arguments of `Kafka`. All classes of a process in which they are the same
    share one broker, which ends with the process. At the end of a test its rules end, and what it has paused or refused is undone.
    """

    kafka = _BrokerOfClass()
    kafka_settings: ClassVar[Mapping[str, object]] = {}
    kafka_as_version: ClassVar[str | None] = None
    kafka_security: ClassVar[str] = PLAINTEXT
    namespace: Namespace

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.kafka  # noqa: B018  # it starts here: if it cannot, that is one error, and not one for each test

    def setUp(self) -> None:
        super().setUp()
        self.namespace = self.kafka.namespace(self._testMethodName)
        self.addCleanup(self.namespace.close)
        self.addCleanup(self.kafka.end_rules)

    def __getattr__(self, name: str) -> Any:
        if name == "namespace":
            advice = "put KafkaMixin before TestCase in the bases of the class, and call super().setUp() in its setUp()"
            raise AttributeError(f"{type(self).__name__} has no namespace, as KafkaMixin.setUp() was not called: {advice}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def brokers() -> Collection[Kafka]:
    """Those of all classes."""
    return _brokers.values()


def _broker(settings: Mapping[str, object], as_version: str | None, security: str) -> Kafka:
    key = json.dumps([as_version, security, sorted((name, str(value)) for name, value in settings.items())])
    if key not in _brokers:
        kafka = Kafka(settings=settings, as_version=as_version, security=security).start()
        atexit.register(kafka.close)
        _brokers[key] = kafka
    return _brokers[key]
