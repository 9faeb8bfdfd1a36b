"""No secret appears where it can be read: random ones in every place, and then everything that the broker and its commands have said."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic, UserScramCredentialUpsertion
from kafka.errors import KafkaError

from tests.cli.commands import run
from tests.support.acls import AUTHORIZER
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.certificates import Authority
from tests.support.sasl import MODULES, client_jaas, properties_file
from tests.support.server import HOST, free_port
from tests.support.waiting import until
from txbroker.cli.main import main
from txbroker.config.broker_keys import BROKER_KEYS

LISTENER = "listener.name.sasl_ssl"


class Secrets:
    """Random texts, each with the place where it is."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}

    def new(self, place: str) -> str:
        return self.made.setdefault(place, f"s{secrets.token_hex(12)}")

    def in_text(self, text: str) -> list[str]:
        """The places whose secrets a text has, plain or as bytes are often shown."""
        found = []
        for place, secret in self.made.items():
            data = secret.encode()
            forms = {secret, data.hex(), base64.b64encode(data).decode().rstrip("=")}
            found += [place for form in forms if form in text]
        return found


def _process_lines(pid: int) -> str:
    """The command lines of a process and its children."""
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(FileNotFoundError):
                lines.append(_process_lines(int(child)))
    return "\n".join(lines)


class SecretBroker(BrokerProcess):
    """Its settings are in a file, and its log has everything."""

    def _command(self) -> list[str]:
        self._ready_file.unlink(missing_ok=True)
        path = properties_file(self.directory / "server.properties", {**self.overrides, "log.dirs": str(self.data)})
        flags = ["--config", str(path), "--ready-file", str(self._ready_file), "--log-level", "debug"]
        return [sys.executable, "-m", "txbroker", "run", *flags]


@pytest.fixture
def made() -> Secrets:
    return Secrets()


@pytest.fixture
def broker(server_directory: Path, tmp_path: Path, made: Secrets) -> Iterator[SecretBroker]:
    authority = Authority(tmp_path)
    users = tmp_path / "users"
    run("users", "--file", str(users), "--add", "filed", stdin=made.new("the file of users") + "\n")
    address, plain = f"localhost:{free_port()}", f"{HOST}:{free_port()}"
    key_password = made.new("ssl.key.password")
    options = f'user_admin="{made.new("PLAIN")}" user_other="{made.new("PLAIN of another user")}"'
    server = SecretBroker(
        server_directory / "secrets",
        {
            **AUTHORIZER,
            "super.users": "User:admin",
            "listeners": f"PLAINTEXT://{plain},SASL_SSL://{address}",
            "advertised.listeners": f"PLAINTEXT://{plain},SASL_SSL://{address}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{LISTENER}.ssl.keystore.type": "PEM",
            f"{LISTENER}.ssl.keystore.location": str(authority.issue("server", ("localhost",)).pem(key_password)),
            f"{LISTENER}.ssl.key.password": key_password,
            f"{LISTENER}.plain.sasl.jaas.config": f"{MODULES['PLAIN']} required {options};",
            "txbroker.scram.users.file": str(users),
            "txbroker.audit.file": str(tmp_path / "audit.log"),
            "txbroker.audit.events": "denial,login,login_failure,change,use",
            "txbroker.metrics.port": str(free_port()),
            # Without effect, but secrets.
            "sasl.jaas.config": f'{MODULES["PLAIN"]} required user_a="{made.new("sasl.jaas.config")}";',
            "listener.name.plaintext.ssl.keystore.password": made.new("ssl.keystore.password"),
            "delegation.token.secret.key": made.new("delegation.token.secret.key"),
            "plugin.secret": made.new("an unknown key"),
            "listener.name.sasl_ssl.plugin.secret": made.new("an unknown key of a listener"),
        },
    )
    server.start()
    server.sasl, server.audit = address, tmp_path / "audit.log"  # type: ignore[attr-defined]
    server.authority = str(authority.pem())  # type: ignore[attr-defined]
    yield server
    server.stop()
    server.close()


def _admin(broker: Any, user: str, password: str, mechanism: str = "PLAIN", timeout_ms: int = 20_000) -> KafkaAdminClient:
    return KafkaAdminClient(
        bootstrap_servers=broker.sasl, security_protocol="SASL_SSL", ssl_cafile=broker.authority, sasl_mechanism=mechanism,
        sasl_plain_username=user, sasl_plain_password=password, bootstrap_timeout_ms=timeout_ms,
    )  # fmt: skip


def test_no_secret_is_in_log_audit_log_answers_metrics_and_command_lines(broker: Any, made: Secrets, tmp_path: Path) -> None:
    said: list[str] = []
    with contextlib.closing(_admin(broker, "admin", made.made["PLAIN"])) as admin:
        for user, mechanism in (("bob", "SCRAM-SHA-512"), ("admin", "SCRAM-SHA-512")):
            password = made.new(f"SCRAM of {user}")
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, mechanism, password.encode(), iterations=4096)])
        with contextlib.closing(_admin(broker, "bob", made.made["SCRAM of bob"], "SCRAM-SHA-512")) as bob:
            for call in (bob.list_topics, lambda: bob.create_topics([NewTopic("t", 1, 1)])):
                said.append(_outcome(call))
        with contextlib.closing(_admin(broker, "filed", made.made["the file of users"], "SCRAM-SHA-512")):
            pass
        broker_id = admin.describe_cluster()["brokers"][0]["broker_id"]
        keys = [key.name for key in BROKER_KEYS.values() if key.sensitive]
        keys += [f"{LISTENER}.{key}" for key in (*keys, "plain.sasl.jaas.config", "scram-sha-512.sasl.jaas.config")]
        for key in [*keys, "plugin.secret", f"{LISTENER}.plugin.secret"]:
            for kind, name in ((ConfigResourceType.BROKER, str(broker_id)), (ConfigResourceType.TOPIC, "t")):
                value = made.new(f"{key} of {kind.name}, altered")
                for text in (value, client_jaas("PLAIN", "x", value), f"{MODULES['PLAIN']} required x={value}"):
                    resources = [ConfigResource(kind, name, configs={key: text})]
                    for incremental in (False, True):
                        alter = partial(admin.alter_configs, resources, raise_on_unknown=False, incremental=incremental)
                        said.append(_outcome(alter))
        topic = NewTopic("t2", 1, 1, topic_configs={"sasl.jaas.config": made.new("a new topic")})
        said.append(_outcome(lambda: admin.create_topics([topic])))
        said.append(str(admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, str(broker_id))])))
        said.append(str(admin.describe_user_scram_credentials(["bob", "filed", "admin"])))
    for user, mechanism in (("admin", "PLAIN"), ("bob", "SCRAM-SHA-512"), ("ghost", "PLAIN")):
        password = made.new(f"wrong password of {user}")
        said.append(_outcome(lambda user=user, mechanism=mechanism, password=password: _admin(broker, user, password, mechanism, 1000)))
    until(lambda: "wrong password" in broker.log() or "no such user" in broker.log(), "a failed login is logged")
    said.append(urllib.request.urlopen(f"http://{HOST}:{broker.overrides['txbroker.metrics.port']}/metrics").read().decode())
    said.append(_process_lines(broker.pid))
    config = str(broker.directory / "server.properties")
    for flags in (("--print", "--all"), ("--print", "--json"), ("--check",)):
        done = subprocess.run([sys.executable, "-m", "txbroker", "config", *flags, "--config", config], capture_output=True, text=True,
                              check=False, cwd=CHECKOUT)  # fmt: skip
        assert "Traceback" not in done.stderr
        said += [done.stdout, done.stderr]
    until(lambda: "login_failure" in broker.audit.read_text(), "the failed login is in the audit log")
    audit = broker.audit.read_text()
    events = {line["event"] for line in map(json.loads, audit.splitlines())}
    assert events == {"denial", "login", "login_failure", "change", "use"}
    assert any("txbroker_login_failures_total" in text for text in said) and "SaslAuthenticate" not in audit
    assert {text[:1000]: places for text in (broker.log(), audit, *said) if (places := made.in_text(text))} == {}


def _outcome(call: Any) -> str:
    """What a client sees; it quotes its own request before the response."""
    try:
        return str(call())
    except KafkaError as error:
        return repr(error).rpartition("failed with response")[2]


@pytest.mark.parametrize("settings", [
    {"listener.name.s.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=\"SECRET"},
    {"listener.name.s.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule user_a=\"SECRET\";"},
    {"listener.name.s.plain.sasl.jaas.config": "com.example.Module required user_a=\"SECRET\";"},
    {"listener.name.s.plain.sasl.jaas.config": "SECRET"},
    {"listener.name.s.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=\"b\" SECRET;"},
    {"ssl.keystore.password": "SECRET", "ssl.keystore.location": "FILE", "listeners": "SSL://127.0.0.1:0"},
    {"ssl.keystore.password": "SECRET", "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "FILE", "listeners": "SSL://127.0.0.1:0"},
    {"ssl.key.password": "SECRET", "ssl.keystore.type": "PEM", "ssl.keystore.location": "FILE", "listeners": "SSL://127.0.0.1:0"},
    {"ssl.keystore.type": "PEM", "ssl.keystore.key": "SECRET", "ssl.keystore.certificate.chain": "x", "listeners": "SSL://127.0.0.1:0"},
    {"ssl.keystore.type": "PEM", "ssl.keystore.key": "x", "ssl.keystore.certificate.chain": "SECRET", "listeners": "SSL://127.0.0.1:0"},
    {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "SECRET", "listeners": "SSL://127.0.0.1:0"},
    {"ssl.truststore.password": "SECRET", "ssl.truststore.location": "FILE", "listeners": "SSL://127.0.0.1:0"},
    {"txbroker.scram.users.file": "FILE"},
    {"super.users": "no principal", "ssl.keystore.password": "SECRET", "plugin.password": "SECRET"},
], ids=lambda settings: "-".join(settings)[:60])  # fmt: skip
def test_errors_of_a_start_have_no_secret(
    settings: dict[str, str], made: Secrets, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also of a file that has something else than expected."""
    file = tmp_path / "file"
    file.write_text(f"alice:{made.new('the file')}\n")
    made.new("the setting")
    base = {"listeners": "S://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    if "listeners" not in settings:
        base |= {"listener.security.protocol.map": "S:SASL_PLAINTEXT", "inter.broker.listener.name": "S"}
        base["sasl.enabled.mechanisms"] = "PLAIN"
    filled = {key: value.replace("SECRET", made.made["the setting"]).replace("FILE", str(file)) for key, value in settings.items()}
    path = properties_file(tmp_path / "server.properties", {**base, **filled})
    assert main(["config", "--check", "--config", str(path)]) == 1
    output, errors = capfd.readouterr()
    assert errors.strip() or output.strip()
    assert made.in_text(output + errors) == [] and "Traceback" not in errors
