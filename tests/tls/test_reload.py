"""Certificates that are replaced while the broker runs: by another file, by the configuration, and on request."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from tests.config.configs import broker_config
from tests.support.certificates import DAY, NOW, PASSWORD, Authority, Issued
from txbroker.broker.tls_listeners import CHECK_S, WARNED_AGAIN_S, TlsListeners
from txbroker.config import security_keys
from txbroker.config.alter import Change, Operation, alter_broker_configs, encrypted
from txbroker.config.keys import Update
from txbroker.config.listeners import parse_listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode, StartError

DAY_MS = 86_400_000
NOW_MS = int(NOW.timestamp() * 1000)
LOCATION = "listener.name.a.ssl.keystore.location"


class Running:
    """Two listeners with TLS, of which A has the file `own`."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.authority = Authority(folder)
        self.folder = folder
        self.own = folder / "own.pem"
        self.write(self.issue(), self.own)
        other = self.authority.issue("other").pem()
        self.config: BrokerConfig = broker_config(
            "listener.security.protocol.map=A:SSL,B:SSL,P:PLAINTEXT\ninter.broker.listener.name=P\n"
            f"listeners=A://127.0.0.1:1,B://127.0.0.1:2,P://127.0.0.1:3\nssl.keystore.type=PEM\nssl.keystore.location={other}\n"
            f"{LOCATION}={self.own}\n{more}"
        )
        self.clock = Clock()
        self.now_ms = NOW_MS
        self.tls = TlsListeners(self.config, parse_listeners(self.config), self.clock, self._work, lambda: self.now_ms)
        self.tls.start()

    def _work(self, job: Callable[[], Any]) -> Deferred[Any]:
        return maybeDeferred(job)

    def issue(self, name: str = "own", days: int = 30, hosts: tuple[str, ...] = ("localhost",)) -> Issued:
        return self.authority.issue(name, hosts, days=(-1, days))

    def write(self, issued: Issued, path: Path) -> Path:
        path.write_text(issued.key_pem() + issued.chain_pem())
        return path

    def until_check(self) -> None:
        self.clock.advance(CHECK_S)

    @property
    def not_after_ms(self) -> int:
        return self.tls.by_name["A"].loaded.server.own.not_after_ms

    def days(self) -> float:
        return min(days for listener, _, _, days in self.tls.certificates() if listener == "A")


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def in_place(running: Running, issued: Issued) -> None:
    running.write(issued, running.own)


def by_rename(running: Running, issued: Issued) -> None:
    os.replace(running.write(issued, running.folder / "new"), running.own)


def by_link(running: Running, issued: Issued) -> None:
    """As Kubernetes: the file is a link through a folder that is a link, which is replaced."""
    folder = running.folder / str(issued.certificate.serial_number)
    folder.mkdir()
    running.write(issued, folder / "own.pem")
    (running.folder / "link").symlink_to(folder)
    os.replace(running.folder / "link", running.folder / "data")
    if not running.own.is_symlink():
        running.own.unlink()
        running.own.symlink_to(running.folder / "data" / "own.pem")


@pytest.mark.parametrize("replace", [in_place, by_rename, by_link])
def test_another_file_is_loaded(running: Running, replace: Callable[[Running, Issued], None]) -> None:
    contexts = [running.tls.by_name["A"].context]
    for days in (60, 90, 20):
        replace(running, running.issue(days=days))
        running.until_check()
        assert running.not_after_ms == (NOW + days * DAY).timestamp() * 1000
        contexts.append(running.tls.by_name["A"].context)
    assert len({id(context) for context in contexts}) == 4, "open connections keep the context that they have"
    running.until_check()
    assert running.tls.by_name["A"].context is contexts[-1], "what has not changed is not loaded again"
    assert running.tls.reloads == {"succeeded": 3, "failed": 0}


def test_the_days_that_are_left_follow_the_loaded_certificate(running: Running) -> None:
    running.now_ms = running.not_after_ms - 5 * DAY_MS
    assert running.days() == 5
    in_place(running, running.issue(days=60))
    running.until_check()
    assert running.days() == 35


def test_a_file_that_cannot_be_used_changes_nothing_and_is_logged_once(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    before = running.tls.by_name["A"].context
    running.own.write_text("nothing")
    for _ in range(3):
        running.until_check()
    assert running.tls.by_name["A"].context is before
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        f"listener A keeps its certificate: {LOCATION} is {running.own}, which cannot be used: it has no private key; "
        "a store of the type PEM is needed, see ssl.keystore.type"
    ]
    # It does not prevent other changes (D4 of Kafka's faults: every change of the broker fails).
    change = [Change("log.cleaner.threads", Operation.SET, "2")]
    assert alter_broker_configs(running.config, {}, change, per_broker=True) == {"log.cleaner.threads": "2"}
    in_place(running, running.issue(days=60))
    running.until_check()
    assert running.tls.by_name["A"].context is not before


@pytest.mark.parametrize(
    ("days", "problem"),
    [((-9, -2), "has ended at {}; use one that is valid now"), ((2, 30), "is not valid before {}; use one that is valid now")],
)
def test_a_certificate_that_is_not_valid_now_replaces_none(
    running: Running, caplog: pytest.LogCaptureFixture, days: tuple[int, int], problem: str
) -> None:
    before = running.tls.by_name["A"].context
    in_place(running, running.authority.issue("own", days=days))
    for _ in range(3):
        running.until_check()
    running.tls.refresh(always=True)
    assert running.tls.by_name["A"].context is before
    date = (NOW + max(days, key=lambda day: -abs(day)) * DAY).strftime("%Y-%m-%d %H:%M:%S UTC")
    text = f"{LOCATION} is {running.own}, whose certificate CN=own,O=Test {problem.format(date)}"
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [f"listener A keeps its certificate: {text}"] * 2, "once for the file, and once on request"
    with pytest.raises(BrokerError) as refused:
        altered(running, LOCATION, str(running.own))
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, text)
    in_place(running, running.issue(days=60))
    running.until_check()
    assert running.tls.by_name["A"].context is not before


@pytest.mark.parametrize(
    ("days", "problem"),
    [((-9, -2), "has ended at {}; use one that is valid now"), ((2, 30), "is not valid before {}; use one that is valid now")],
)
def test_a_chain_with_a_certificate_that_is_not_valid_now_replaces_none(
    running: Running, caplog: pytest.LogCaptureFixture, days: tuple[int, int], problem: str
) -> None:
    """No client that has only the root accepts it."""
    before = running.tls.by_name["A"].context
    own, between = Authority(running.folder, "between").issue("own"), running.authority.issue("between", days=days)
    own.chain.append(between.certificate)
    in_place(running, own)
    running.until_check()
    assert running.tls.by_name["A"].context is before
    date = (NOW + max(days, key=lambda day: -abs(day)) * DAY).strftime("%Y-%m-%d %H:%M:%S UTC")
    remedy = ", or leave it out if clients trust this name themselves"
    assert f"{LOCATION} is {running.own}, whose certificate CN=between,O=Test {problem.format(date)}{remedy}" in caplog.text
    own.chain[1] = running.authority.issue("between", days=(-1, 60)).certificate
    in_place(running, own)
    running.until_check()
    assert running.tls.by_name["A"].context is not before


def test_a_root_that_has_ended_is_loaded_with_the_chain(running: Running) -> None:
    """Clients have their own root, perhaps a newer one."""
    before = running.tls.by_name["A"].context
    own = running.issue(days=5000)
    own.chain.append(running.authority.certificate)
    in_place(running, own)
    running.now_ms = NOW_MS + 4000 * DAY_MS
    running.until_check()
    assert running.tls.by_name["A"].context is not before


def test_a_certificate_is_loaded_when_it_begins(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    in_place(running, running.authority.issue("own", days=(2, 60)))
    running.until_check()
    before = running.not_after_ms
    running.now_ms += 2 * DAY_MS
    running.until_check()
    assert running.not_after_ms == before + 30 * DAY_MS
    assert caplog.text.count("keeps its certificate") == 1


def test_another_trust_store_is_loaded_although_the_own_certificate_has_ended(running: Running) -> None:
    running.now_ms = running.not_after_ms + DAY_MS
    named = {"truststore.type": "PEM", "truststore.location": str(running.authority.pem()), "client.auth": "required"}
    running.config.set_dynamic({f"listener.name.a.ssl.{key}": value for key, value in named.items()}, {})
    running.tls.refresh()
    assert running.tls.by_name["A"].context.verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize(("days", "text"), [((-9, -2), "has ended on"), ((2, 30), "is not valid before")])
def test_a_broker_starts_with_a_certificate_that_is_not_valid_now_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: tuple[int, int], text: str
) -> None:
    """As Kafka, for a listener that brokers do not use."""
    running = Running(tmp_path)
    in_place(running, running.authority.issue("own", days=days))
    tls = TlsListeners(running.config, parse_listeners(running.config), Clock(), maybeDeferred, lambda: NOW_MS)
    tls.open(1)
    tls.start()
    assert f"the own certificate CN=own,O=Test of listener A {text}" in caplog.text


def test_another_name_is_refused_unless_it_is_allowed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    running = Running(tmp_path)
    before = running.tls.by_name["A"].context
    in_place(running, running.issue("another"))
    running.until_check()
    assert running.tls.by_name["A"].context is before
    assert (
        f"{LOCATION} is {running.own}, whose certificate has the name CN=another,O=Test instead of CN=own,O=Test; "
        "restart the broker, with ssl.allow.dn.changes=true if that may happen again" in caplog.text
    )
    in_place(running, running.issue(hosts=("other.example",)))
    running.until_check()
    assert running.tls.by_name["A"].context is before
    assert "fewer names of hosts than before; restart the broker, with ssl.allow.san.changes=true" in caplog.text
    in_place(running, running.issue(hosts=("localhost", "other.example")))
    running.until_check()
    assert running.tls.by_name["A"].context is not before
    free = Running(tmp_path, "listener.name.a.ssl.allow.dn.changes=true\nssl.allow.san.changes=true\n")
    before = free.tls.by_name["A"].context
    in_place(free, free.issue("another", hosts=("other.example",)))
    free.until_check()
    assert free.tls.by_name["A"].context is not before


def test_everything_is_loaded_again_on_request(running: Running) -> None:
    before = {name: tls.context for name, tls in running.tls.by_name.items()}
    running.tls.refresh(always=True)
    assert all(tls.context is not before[name] for name, tls in running.tls.by_name.items())


def altered(running: Running, name: str, value: str, *, per_broker: bool = True) -> dict[str, str]:
    return alter_broker_configs(running.config, {}, [Change(name, Operation.SET, value)], per_broker=per_broker)


def test_the_configuration_names_another_file(running: Running) -> None:
    path = running.write(running.issue(days=77), running.folder / "another.pem")
    values = altered(running, LOCATION, str(path))
    running.config.set_dynamic(values, {})
    running.tls.refresh()
    assert running.tls.by_name["A"].loaded.settings.keystore.location == str(path)  # type: ignore[union-attr]
    running.config.set_dynamic({}, {})
    running.tls.refresh()
    assert running.tls.by_name["A"].loaded.settings.keystore.location == str(running.own)  # type: ignore[union-attr]


def test_the_same_file_is_loaded_again_if_it_has_changed(running: Running) -> None:
    """As Kafka: kafka-configs with the same location."""
    in_place(running, running.issue(days=66))
    running.config.set_dynamic(altered(running, LOCATION, str(running.own)), {})
    running.tls.refresh()
    assert running.tls.reloads == {"succeeded": 1, "failed": 0}


def test_client_authentication_changes_at_once(running: Running) -> None:
    named = {"truststore.type": "PEM", "truststore.location": str(running.authority.pem()), "client.auth": "required"}
    changes = [Change(f"listener.name.a.ssl.{key}", Operation.SET, value) for key, value in named.items()]
    values = alter_broker_configs(running.config, {}, changes, per_broker=True)
    running.config.set_dynamic(values, {})
    running.tls.refresh()
    assert running.tls.by_name["A"].context.verify_mode.name == "CERT_REQUIRED"
    assert running.tls.by_name["B"].context.verify_mode.name == "CERT_NONE"


@pytest.mark.parametrize(
    ("name", "value", "per_broker", "message"),
    [
        (LOCATION, "/none", True, f"{LOCATION} is /none, which cannot be read: No such file or directory"),
        (LOCATION, "/none", False, f"{LOCATION} can be set only for a single broker, not as the default of all brokers"),
        ("ssl.keystore.location", "/x", True,
         "ssl.keystore.location cannot be changed while the broker runs: set listener.name.<listener>.ssl.keystore.location"),
        ("listener.name.a.ssl.client.auth", "required", True, "listener.name.a.ssl.client.auth is required, so ssl.truststore.location "
         "must be set: with the certificates of the system every public certificate would be accepted"),
        ("listener.name.a.ssl.client.auth", "maybe", True,
         "listener.name.a.ssl.client.auth is 'maybe'; it must be one of required, requested, none"),
        ("listener.name.a.ssl.principal.mapping.rules", "DEFAULT", True,
         "listener.name.a.ssl.principal.mapping.rules cannot be changed while the broker runs"),
        ("listener.name.a.sasl.enabled.mechanisms", "PLAIN", True,
         "listener.name.a.sasl.enabled.mechanisms cannot be changed while the broker runs"),
        ("listener.name.a.max.connections", "1", True, "listener.name.a.max.connections is not a key that single listeners can have"),
        ("listener.name.p.ssl.keystore.location", "/x", True,
         "listener.name.p.ssl.keystore.location: this broker has no listener with TLS of that name"),
        ("listener.name.a.ssl.provider", "x", True, "listener.name.a.ssl.provider cannot be changed while the broker runs"),
    ],
)  # fmt: skip
def test_changes_that_cannot_take_effect_are_refused(running: Running, name: str, value: str, per_broker: bool, message: str) -> None:
    with pytest.raises(BrokerError) as caught:
        altered(running, name, value, per_broker=per_broker)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)


def test_a_certificate_that_ends_soon_is_named_once_a_day(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    def warnings() -> int:
        return sum("of listener A ends on" in record.getMessage() for record in caplog.records)

    running.now_ms = running.not_after_ms - 3 * DAY_MS
    running.clock.advance(WARNED_AGAIN_S)
    assert warnings() == 1
    running.until_check()
    assert warnings() == 1
    running.now_ms = running.not_after_ms + DAY_MS
    running.clock.advance(WARNED_AGAIN_S)
    assert "the own certificate CN=own,O=Test of listener A has ended on" in caplog.text


SECURED = (
    "listener.security.protocol.map=A:SSL,P:PLAINTEXT\ninter.broker.listener.name=P\nlisteners=A://127.0.0.1:1,P://127.0.0.1:2\n"
    "ssl.keystore.type=PEM\nssl.keystore.location={own}\nssl.truststore.type=PEM\nssl.truststore.location={trusted}\n"
    "ssl.client.auth=required\n"
)


def between(folder: Path, authority: Authority, issuer: Authority) -> BrokerConfig:
    return broker_config(
        "listener.security.protocol.map=A:SSL\ninter.broker.listener.name=A\nlisteners=A://127.0.0.1:1\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={issuer.issue('broker').pem()}\nssl.truststore.type=PEM\nssl.truststore.location={authority.pem()}\n"
    )


def test_brokers_that_could_not_connect_to_each_other_do_not_start(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    config = between(tmp_path, authority, foreign)
    with pytest.raises(StartError) as caught:
        TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: NOW_MS).open(1)
    assert str(caught.value) == (
        f"server.properties:7: ssl.truststore.location is {authority.pem()}, which does not fit the certificate in the key store: "
        "unable to get local issuer certificate; brokers could not connect to each other (listener A)"
    )


def test_another_authority_between_brokers_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Connections of brokers that still have the old certificate would fail."""
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    config = between(tmp_path, authority, authority)
    clock = Clock()
    tls = TlsListeners(config, parse_listeners(config), clock, maybeDeferred, lambda: NOW_MS)
    tls.start()
    before = tls.by_name["A"].client_context()
    foreign.issue("broker").pem()
    (tmp_path / "authority.pem").write_text(foreign.text())
    clock.advance(CHECK_S)
    assert tls.by_name["A"].client_context() is before
    assert "brokers with the present certificate and with this one could not connect to each other" in caplog.text
    # First the trust stores of all brokers, and then their certificates.
    for issuer in (authority, foreign):
        before = tls.by_name["A"].client_context()
        (tmp_path / "broker.pem").write_text(issuer.issue("broker").pem().read_text())
        (tmp_path / "authority.pem").write_text(authority.text() + foreign.text())
        clock.advance(CHECK_S)
        assert tls.by_name["A"].client_context() is not before


def test_at_the_start_stores_of_the_metadata_are_not_compared_with_those_of_the_file(tmp_path: Path) -> None:
    """An authority that was replaced by the configuration of the broker: what the file has fits none of the other brokers any more."""
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    prefix = "listener.name.a.ssl."
    for file_is_gone in (False, True):
        config = between(tmp_path, authority, authority)
        own = tmp_path / "own.pem"
        issued = foreign.issue("broker")
        if file_is_gone:
            (tmp_path / "broker.pem").unlink()
        tls = TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: NOW_MS)
        own.write_text(issued.key_pem() + issued.chain_pem())
        config.set_dynamic({f"{prefix}keystore.location": str(own), f"{prefix}truststore.location": str(foreign.pem())}, {})
        tls.open(1)
        found = tls.by_name["A"].loaded.settings.keystore
        assert found is not None and found.location == str(own)


@pytest.mark.parametrize("zookeeper", ["", "zookeeper.connect=127.0.0.1:1\n"])
@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_no_other_store_is_used_instead_of_one_of_the_metadata(tmp_path: Path, store: str, zookeeper: str) -> None:
    """That of the file may trust other clients: the broker does not start, as Kafka."""
    authority = Authority(tmp_path)
    config = broker_config(SECURED.format(own=authority.issue("broker").pem(), trusted=authority.pem()) + zookeeper)
    tls = TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: NOW_MS)
    key = f"listener.name.a.ssl.{store}.location"
    config.set_dynamic({key: "/none"}, {})
    with pytest.raises(StartError) as caught:
        tls.open(7)
    advice = (", or delete them there with `kafka-configs --zookeeper` of Apache Kafka 3.9" if zookeeper else
              ", or delete them there, while no broker runs: `txbroker configs --log-dirs /tmp/kafka-logs --alter --broker 7 "
              f"--delete-config {key}`")  # fmt: skip
    assert str(caught.value) == (
        f"{key} is /none, which cannot be read: No such file or directory (listener A); /config/brokers/7 of the metadata sets {key}: "
        f"restore what they name{advice}"
    )


@pytest.mark.parametrize(
    ("static", "stored", "named"),
    [
        ("listener.name.a.ssl.keystore.location=/none", {"client.auth": "requested"}, []),
        ("listener.name.a.ssl.keystore.password=x", {"truststore.location": "{ca}"}, []),
        ("listener.name.a.ssl.keystore.password=x", {"keystore.type": "PEM", "client.auth": "requested"}, ["keystore.type"]),
        ("listener.name.a.ssl.truststore.location=", {"client.auth": "required", "enabled.protocols": "TLSv1.3"}, ["client.auth"]),
        ("ssl.client.auth=required", {"truststore.location": "", "enabled.protocols": "TLSv1.3"}, ["truststore.location"]),
    ],
)
def test_the_message_names_the_stored_keys_that_the_fault_concerns(
    tmp_path: Path, static: str, stored: dict[str, str], named: list[str]
) -> None:
    authority = Authority(tmp_path)
    config = broker_config(SECURED.format(own=authority.issue("broker").pem(), trusted=authority.pem()) + static + "\n")
    config.set_dynamic({f"listener.name.a.ssl.{key}": value.format(ca=authority.pem()) for key, value in stored.items()}, {})
    tls = TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: NOW_MS)
    with pytest.raises(StartError) as caught:
        tls.open(7)
    names = ", ".join(f"listener.name.a.ssl.{key}" for key in named)
    _, has_advice, advice = str(caught.value).partition("; /config/brokers/7 of the metadata sets ")
    assert bool(has_advice) == bool(named) and advice.startswith(names)
    assert all(f"ssl.{key}" not in advice for key in stored if key not in named)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("truststore.certificates", "encrypted", "it is encrypted, and password.encoder.secret is not set; set it again"),
        ("truststore.password", "encrypted", "it is encrypted, and password.encoder.secret is not set; set it again"),
        ("key.password", "encrypted", "it is encrypted, and password.encoder.secret is not set; set it again"),
        ("client.auth", "must", "listener.name.a.ssl.client.auth is 'must'; it must be one of required, requested, none"),
    ],
)
def test_a_value_of_the_metadata_that_cannot_be_read_is_not_replaced_by_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: str, why: str
) -> None:
    authority = Authority(tmp_path)
    text = SECURED.format(own=authority.issue("broker").pem(), trusted=authority.pem())
    key = f"listener.name.a.ssl.{name}"
    config = broker_config(text)
    tls = TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: NOW_MS)
    config.set_dynamic({key: value}, {})
    message = f"{key} cannot be read: {why} (listener A); /config/brokers/7 of the metadata sets {key}: "
    with pytest.raises(StartError, match=re.escape(message)):
        tls.open(7)
    # While the broker runs, the listener keeps what it has.
    config, clock = broker_config(text), Clock()
    tls = TlsListeners(config, parse_listeners(config), clock, maybeDeferred, lambda: NOW_MS)
    config.set_dynamic({"listener.name.a.ssl.client.auth": "requested"}, {})
    tls.open(7)
    tls.start()
    before = tls.by_name["A"].loaded
    config.set_dynamic({key: value}, {})
    tls.refresh()
    clock.advance(CHECK_S)
    assert tls.by_name["A"].loaded is before and before.settings.client_auth == "requested"
    lines = [record.getMessage() for record in caplog.records if "keeps its certificate" in record.getMessage()]
    assert lines == [f"listener A keeps its certificate: {key} cannot be read: {why}"]


def test_client_authentication_of_all_listeners_can_be_in_the_metadata(tmp_path: Path) -> None:
    """Kafka takes all keys but those of stores without the name of a listener."""
    authority = Authority(tmp_path)
    text = SECURED.format(own=authority.issue("broker").pem(), trusted=authority.pem()).replace("auth=required", "auth=none")
    for value, problem in (("required", None), ("must", "ssl.client.auth cannot be read: ")):
        config = broker_config(text)
        tls = TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: NOW_MS)
        assert tls.by_name["A"].loaded.settings.client_auth == "none"
        config.set_dynamic({"ssl.client.auth": value}, {})
        if problem is None:
            tls.open(7)
            assert tls.by_name["A"].loaded.settings.client_auth == "required"
            continue
        with pytest.raises(StartError, match=f"{problem}.*; /config/brokers/7 of the metadata sets ssl.client.auth: restore"):
            tls.open(7)


@pytest.mark.parametrize(
    ("broker", "default"),
    [
        ({"ssl.truststore.location": "/none"}, {}),
        ({}, {"listener.name.a.ssl.truststore.location": "/none", "ssl.truststore.location": "/none"}),
    ],
)
def test_stores_where_the_metadata_cannot_have_them_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broker: dict[str, str], default: dict[str, str]
) -> None:
    """As DynamicBrokerConfig of Kafka."""
    authority = Authority(tmp_path)
    config = broker_config(SECURED.format(own=authority.issue("broker").pem(), trusted=authority.pem()))
    tls = TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: NOW_MS)
    config.set_dynamic(broker, default)
    tls.open(7)
    trusted = tls.by_name["A"].loaded.settings.truststore
    assert trusted is not None and trusted.location == str(authority.pem())
    for name in (*broker, *default):
        assert f"ignoring a dynamic value: {name} can be set only" in caplog.text


def changes_with_effect(running: Running) -> dict[str, dict[str, str]]:
    """By key of TLS a change, with what it needs, of listener A."""
    other = running.issue()
    inline = {"keystore.location": "", "keystore.key": other.key_pem(), "keystore.certificate.chain": other.chain_pem()}
    store = {"keystore.type": "PKCS12", "keystore.location": str(other.pkcs12()), "keystore.password": PASSWORD}
    trusted = {"truststore.type": "PEM", "truststore.location": str(running.authority.pem())}
    java = str(running.authority.truststore("JKS"))
    trust_store = {"truststore.type": "JKS", "truststore.location": java, "truststore.password": PASSWORD}
    encrypted_key = {"keystore.location": str(other.pem(PASSWORD)), "key.password": PASSWORD}
    return {
        "enabled.protocols": {"enabled.protocols": "TLSv1.3"},
        "cipher.suites": {"cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
        "client.auth": {"client.auth": "required", **trusted},
        **dict.fromkeys(("keystore.type", "keystore.password"), store),
        **dict.fromkeys(("keystore.location", "key.password"), encrypted_key),
        **dict.fromkeys(("keystore.key", "keystore.certificate.chain"), inline),
        **dict.fromkeys(("truststore.type", "truststore.location"), trusted),
        "truststore.password": trust_store,
        "truststore.certificates": {"truststore.type": "PEM", "truststore.certificates": running.authority.text()},
    }


def test_each_security_key_takes_effect_at_once_or_is_refused(tmp_path: Path) -> None:
    """Kafka answers many changes with 0 that have no effect until a restart, among them ssl.client.auth and sasl.jaas.config (D5)."""
    running = Running(tmp_path, "password.encoder.secret=s\npassword.encoder.iterations=1024\n")
    with_effect = changes_with_effect(running)
    accepted = set()
    for key in security_keys.KEYS:
        for prefix in ("", "listener.name.a.", "listener.name.a.plain."):
            for value in ("1", "true", "PLAIN", "DEFAULT", "User:a", "none"):
                try:
                    changes = encrypted(running.config, [Change(prefix + key.name, Operation.SET, value)], os.urandom, per_broker=True)
                    alter_broker_configs(running.config, {}, changes, per_broker=True)
                except BrokerError as refused:
                    assert refused.code == ErrorCode.INVALID_REQUEST
                    continue
                accepted.add(prefix + key.name)
    assert accepted <= {f"listener.name.a.ssl.{key}" for key in with_effect}, "list these above, with a change that has an effect"

    possible = {key.name for key in security_keys.KEYS if key.name.startswith("ssl.") and key.effective and key.update is Update.PER_BROKER}
    assert {f"ssl.{key}" for key in with_effect} == possible - {"ssl.engine.factory.class", "ssl.endpoint.identification.algorithm"}
    for changed, values in with_effect.items():
        before = running.tls.by_name["A"].loaded
        named = [Change(f"listener.name.a.ssl.{name}", Operation.SET, value) for name, value in values.items()]
        stored = alter_broker_configs(running.config, {}, encrypted(running.config, named, os.urandom, per_broker=True), per_broker=True)
        running.config.set_dynamic(stored, {})
        running.tls.refresh()
        after = running.tls.by_name["A"].loaded
        assert after is not before and after.settings != before.settings, changed
        running.config.set_dynamic({}, {})
        running.tls.refresh()
        assert running.tls.by_name["A"].loaded.settings == before.settings


@pytest.mark.parametrize(("between_brokers", "value", "refused"), [
    ("A", "", None),
    ("A", "htps", "listener.name.a.ssl.endpoint.identification.algorithm is htps; it must be https, or empty"),
    ("P", "", "listener.name.a.ssl.endpoint.identification.algorithm has no effect: this broker checks host names on the listener between "
              "brokers only, P"),
    ("P", "https", "listener.name.a.ssl.endpoint.identification.algorithm has no effect"),
])  # fmt: skip
def test_host_names_are_checked_between_brokers_only(tmp_path: Path, between_brokers: str, value: str, refused: str | None) -> None:
    authority = Authority(tmp_path)
    config = broker_config(
        f"listener.security.protocol.map=A:SSL,P:PLAINTEXT\ninter.broker.listener.name={between_brokers}\n"
        "listeners=A://127.0.0.1:1,P://127.0.0.1:3\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.pem()}\n{LOCATION}={authority.issue('own').pem()}\n"
    )
    tls = TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: 0)
    tls.start()
    change = Change("listener.name.a.ssl.endpoint.identification.algorithm", Operation.SET, value)
    if refused is not None:
        with pytest.raises(BrokerError, match=re.escape(refused)) as error:
            alter_broker_configs(config, {}, [change], per_broker=True)
        assert error.value.code == ErrorCode.INVALID_REQUEST
    else:
        config.set_dynamic(alter_broker_configs(config, {}, [change], per_broker=True), {})
        tls.refresh()
        client = tls.by_name["A"].loaded.client
        assert client is not None and not client.check_hostname
    # What is stored can be removed in each case.
    removal = [Change(change.name, Operation.DELETE, None)]
    assert alter_broker_configs(config, {change.name: ""}, removal, per_broker=True) == {}
    tls.stop()
