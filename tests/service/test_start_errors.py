"""Why a broker cannot start, where the reason is met after its log directories and its metadata file are open."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from simulation.memory_disk import MemoryDisk
from tests.service.whole_broker import WholeBroker
from tests.support.certificates import Authority
from tests.support.fakes.environment import fake_environment
from tests.support.fakes.reactor import FakeReactor
from txbroker.action_queue import ActionQueue
from txbroker.broker.service import Broker
from txbroker.broker.settings import limits
from txbroker.broker.stored_keys import refuse_stored_sasl
from txbroker.cluster.tree.interface import NoSpaceInStore
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.config.listeners import parse_listeners
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.errors import StartError
from txbroker.transport.hub import Hub
from txbroker.transport.interfaces import FrameProtocol
from txbroker.transport.listener import Listener


class FullTree:
    """A tree that can be read, and whose disk is full."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def _refuse(self, *_: object, **__: object) -> Deferred[Any]:
        return fail(NoSpaceInStore("/", "cannot write /data/metadata: No space left on device"))

    create = set = delete = multi = _refuse


def test_a_disk_that_becomes_full_during_the_start_is_named() -> None:
    reactor = FakeReactor()
    environment = fake_environment(reactor, MemoryDisk(), Random(1))
    full = replace(environment, open_tree=lambda path, on_full, create: FullTree(environment.open_tree(path, on_full, create)))
    config = load_broker_config(parse_overrides(["listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/data", "broker.id=1"], {}))
    outcome: list[object] = []
    Broker(config, full, ["/data"], outcome.append).start().addBoth(outcome.append)
    reactor.advance(10)
    (failure,) = outcome
    assert isinstance(failure, Failure) and failure.check(StartError)
    assert failure.getErrorMessage() == "the disk is full: cannot write /data/metadata: No space left on device; free space there"


def test_a_port_in_use_is_found_before_anything_is_written(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use; stop what uses the port"):
            WholeBroker([tmp_path / "data"], f"listeners=PLAINTEXT://127.0.0.1:{port}")
        assert not (tmp_path / "data").exists()


def test_the_check_of_a_port_lets_no_client_connect() -> None:
    """Brokers are suspected by their refused connections: during a start, connections must be refused."""
    reactor = FakeReactor()
    hub = Hub(reactor, limits(load_broker_config({})), lambda job: fail(RuntimeError()), ActionQueue(reactor.callLater))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for host in ("127.0.0.1", "localhost", ""):
        Listener(hub, "", host, port, FrameProtocol, backlog=1).check()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)


SASL = "listeners=SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (("txbroker.scram.users.file=/none/users",), "txbroker.scram.users.file is /none/users: the file does not exist"),
        (("txbroker.audit.file=/none/audit",), "txbroker.audit.file is /none/audit: "),
        (
            (
                SASL, "sasl.enabled.mechanisms=OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url=https://127.0.0.1:1/keys",
                f'listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={OAUTH} ssl.truststore.location="/none/store" '
                'ssl.truststore.type="PEM";',
            ),
            "the option ssl.truststore.location of the login configuration of OAUTHBEARER",
        ),
        (
            ("listeners=SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "ssl.principal.mapping.rules=CN"),
            "ssl.principal.mapping.rules is not valid",
        ),
    ],
)  # fmt: skip
def test_what_is_on_this_machine_is_checked_before_zookeeper_is_awaited(tmp_path: Path, overrides: tuple[str, ...], problem: str) -> None:
    if "principal" in problem:
        overrides += "ssl.keystore.type=PEM", f"ssl.keystore.location={Authority(tmp_path).issue('server').pem()}"
    with pytest.raises(StartError, match=re.escape(problem)):
        WholeBroker([tmp_path / "data"], "zookeeper.connect=127.0.0.1:1", "inter.broker.listener.name=PLAINTEXT", *overrides)


def test_a_store_that_only_the_metadata_can_replace_is_named_before_zookeeper_is_awaited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = (
        "zookeeper.connect=127.0.0.1:1", "listeners=SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "inter.broker.listener.name=PLAINTEXT",
        "ssl.keystore.location=/none/store", "ssl.keystore.type=PEM",
    )  # fmt: skip
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / FILE_NAME).touch()
    with pytest.raises(StartError, match="has the metadata of a broker without ZooKeeper"):
        WholeBroker([tmp_path / "data"], *settings)
    assert (
        "the broker cannot start, unless its configuration in the metadata has another store: --override: ssl.keystore.location is "
        "/none/store, which cannot be read: No such file or directory (listener SSL)" in caplog.text
    )


@pytest.mark.parametrize(
    ("stored", "is_refused"),
    [
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256"}, True),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, True),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "encrypted"}, True),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512"}, False),  # as in the file
        ({"listener.name.other.sasl.enabled.mechanisms": "SCRAM-SHA-256"}, False),
        ({"listener.name.sasl_plaintext.sasl.login.refresh.window.factor": "0.5"}, False),  # without effect here
        ({"listener.name.sasl_plaintext.connections.max.reauth.ms": "5"}, False),  # Kafka ignores it, too
    ],
)
def test_logins_that_only_the_metadata_has_are_refused(stored: dict[str, str], is_refused: bool) -> None:
    """Kafka can store them; they do not take effect here, and what the file has could let in others."""
    settings = [SASL, "sasl.enabled.mechanisms=SCRAM-SHA-512", "inter.broker.listener.name=PLAINTEXT"]
    config = load_broker_config(parse_overrides(settings, {}))
    config.set_dynamic(stored, {})
    if not is_refused:
        refuse_stored_sasl(config, parse_listeners(config), 3)
        return
    with pytest.raises(StartError) as caught:
        refuse_stored_sasl(config, parse_listeners(config), 3)
    (name,) = stored
    assert str(caught.value) == (
        f"/config/brokers/3 of the metadata sets {name}, but keys of logins are read only from the file of the broker (and --override): "
        "set them there to the same values, or delete them there, while no broker runs: `txbroker configs --log-dirs /tmp/kafka-logs "
        f"--alter --broker 3 --delete-config {name}`"
    )
