"""The members of kafka-python that are not its public interface, and that the commands need; setup.cfg bounds its version for them.

Before the bound is raised, this test must pass with the new version.
"""

from __future__ import annotations

import configparser
import inspect
import re

import kafka
import kafka.net.connection
import kafka.producer.sender
import pytest

from tests.support.cache import CHECKOUT
from tests.support.server import Server
from txbroker.cli import clients

PRIVATE = re.compile(r"\b(?:admin|client|producer|consumer)\.(_[a-z]\w*(?:\.\w+)?)")
NEEDED = {"_manager.run", "_manager.send", "_send_request_to_controller", "_sender.force_close", "_transaction_manager.last_error"}


def test_the_version_is_bounded_above() -> None:
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    (requirement,) = re.findall(r"^kafka-python.*$", setup["options"]["install_requires"], re.MULTILINE)
    assert requirement == "kafka-python>=3.0,<3.1"
    assert kafka.__version__.startswith("3.0.")


def test_no_other_private_members_are_used() -> None:
    sources = [path for path in (CHECKOUT / "txbroker").rglob("*.py") if path.parent.name != "tree"]  # that is kazoo's
    used = {name for path in sources for name in PRIVATE.findall(path.read_text())}
    used |= {"_transaction_manager.last_error"} if used & {"_producer._transaction_manager"} else set()
    assert {name for name in used if not name.startswith("_producer")} <= NEEDED


@pytest.mark.process
def test_the_members_exist(broker: Server) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.address)
    producer = kafka.KafkaProducer(bootstrap_servers=broker.address, transactional_id="members")
    try:
        for target in (admin._manager.run, admin._manager.send, admin._send_request_to_controller, producer._sender.force_close):
            assert callable(target)
        assert hasattr(producer._transaction_manager, "last_error")
    finally:
        producer.close()
        admin.close()


def test_the_log_texts_and_loggers_exist() -> None:
    """Notices about lost connections and refused batches are made from the library's log."""
    assert "Got error produce response" in inspect.getsource(kafka.producer.sender)
    assert kafka.producer.sender.log.name == "kafka.producer.sender"
    assert kafka.net.connection.log.name == "kafka.net.connection"
    source = inspect.getsource(clients)
    assert "kafka.net.connection" in source and "kafka.producer.sender" in source
