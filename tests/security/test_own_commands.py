"""The commands of this project with TLS and logins: each takes the properties of a Java client, and doctor explains what is wrong."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import ENVIRONMENT, command, run
from tests.support.certificates import Authority
from tests.support.sasl import MODULES, client_jaas, properties_file, quoted
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.extended]

MECHANISM = "SCRAM-SHA-512"
LISTENERS = {"GOOD": "SASL_SSL", "PLAIN_LOGIN": "SASL_PLAINTEXT", "EXPIRED": "SSL", "FUTURE": "SSL", "OTHER": "SSL", "MUTUAL": "SSL",
             "FOREIGN": "SSL", "SOON": "SSL", "PLAINTEXT": "PLAINTEXT"}  # fmt: skip


class Secured:
    """A broker with one listener for each kind of certificate."""

    def __init__(self, start: Callable[[dict[str, str]], Server], folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        authority, foreign = Authority(folder), Authority(folder, "foreign")
        self.authority = str(authority.pem())
        self.client = str(authority.issue("client", []).pem())
        self.address = {name: f"localhost:{free_port()}" for name in LISTENERS}
        names = ("localhost", "127.0.0.1")
        own = {
            "GOOD": authority.issue("good", names, days=(-1, 300)), "EXPIRED": authority.issue("expired", names, days=(-9, -2)),
            "FUTURE": authority.issue("future", names, days=(2, 90)), "MUTUAL": authority.issue("mutual", names),
            "OTHER": authority.issue("other", ("other.example.org", "10.0.0.1")), "FOREIGN": foreign.issue("of others", names),
            "SOON": authority.issue("soon", names, days=(-1, 3)),
        }  # fmt: skip
        users = folder / "users"
        run("users", "--file", str(users), "--add", "alice", stdin="alice-secret\n")
        self.server = start({
            "listeners": ",".join(f"{name}://{address.replace('localhost', HOST)}" for name, address in self.address.items()),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in self.address.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            **{f"listener.name.{name.lower()}.ssl.keystore.location": str(issued.pem()) for name, issued in own.items()},
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.type": "PEM",
            "listener.name.mutual.ssl.truststore.location": self.authority,
            "sasl.enabled.mechanisms": MECHANISM,
            "listener.name.plain_login.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plain_login.plain.sasl.jaas.config": f"{MODULES['PLAIN']} required user_alice={quoted('alice-secret')};",
            "txbroker.scram.users.file": str(users),
        })  # fmt: skip

    def flags(self, listener: str, protocol: str | None = None, **more: str) -> tuple[str, ...]:
        """Those of a command, with properties for a listener. In names of more properties _ is a point."""
        mechanism = "PLAIN" if listener == "PLAIN_LOGIN" else MECHANISM
        properties = {
            "security.protocol": protocol or LISTENERS[listener], "ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority,
            "sasl.mechanism": mechanism, "sasl.jaas.config": client_jaas(mechanism, "alice", "alice-secret"),
            **{key.replace("_", "."): value for key, value in more.items()},
        }  # fmt: skip
        path = properties_file(self.folder / f"{listener}-{len(list(self.folder.iterdir()))}.properties", properties)
        return ("--bootstrap-server", self.address[listener], "--command-config", str(path))


@pytest.fixture
def secured(start_broker: Callable[[dict[str, str]], Server], tmp_path: Path) -> Secured:
    return Secured(start_broker, tmp_path)


def doctor(flags: tuple[str, ...], status: int) -> dict[str, tuple[str, str, str]]:
    """Outcome, found and advice by check."""
    output, _ = run("doctor", *flags, "--interval", "0", "--json", status=status)
    rows = [json.loads(line) for line in output.splitlines()]
    return {row["check"]: (row["outcome"], row["found"], row["advice"]) for row in rows}


def test_doctor_explains_certificates_and_logins(secured: Secured) -> None:
    found = doctor(secured.flags("GOOD"), 0)
    address = secured.address["GOOD"]
    assert found[f"certificate of {address}"][0] == "ok" and "CN=good,O=Test, valid until" in found[f"certificate of {address}"][1]
    assert [row[0] for check, row in found.items() if check.startswith("cluster at")] == ["ok"]

    outcome, what, advice = doctor(secured.flags("SOON"), 0)[f"certificate of {secured.address['SOON']}"]
    assert outcome == "warning" and "it ends in" in what and "txbroker secure renew" in advice

    def failure(listener: str, protocol: str | None = None, **more: str) -> tuple[str, str]:
        found = doctor(secured.flags(listener, protocol, **more), 1)
        outcome, what, advice = found[f"bootstrap server {secured.address[listener]}"]
        assert outcome == "failed"
        return what, advice

    what, advice = failure("EXPIRED")
    assert "(CN=expired,O=Test) has ended at" in what and "by the clock of this machine" in what and "correct the clock" in advice
    what, advice = failure("FUTURE")
    assert "(CN=future,O=Test) is valid from" in what and "by the clock of this machine" in what and "correct the clock" in advice
    what, advice = failure("OTHER")
    assert "(CN=other,O=Test) is for 10.0.0.1, other.example.org, and not for localhost" in what and "advertised.listeners" in advice
    what, advice = failure("FOREIGN")
    assert f"was issued by CN=foreign,O=Test, which is not in {secured.authority}" in what and "ssl.truststore.location" in advice
    what, advice = failure("GOOD", ssl_truststore_location="/nothing")
    assert "ssl.truststore.location is /nothing" in what and advice == "correct the properties of the client"
    what, advice = failure("GOOD", sasl_mechanism="PLAIN")
    assert f"does not support the SASL mechanism PLAIN, but {MECHANISM}" in what and "set sasl.mechanism" in advice
    what, advice = failure("GOOD", sasl_jaas_config=client_jaas(MECHANISM, "alice", "wrong"))
    assert "user alice could not log in" in what and "correct user and password" in advice
    what, advice = failure("GOOD", "PLAINTEXT")
    assert "is a listener that requires TLS" in what and "set security.protocol to SSL or SASL_SSL" in advice
    what, advice = failure("PLAINTEXT", "SSL")
    assert "is a listener without TLS" in what and "set security.protocol to PLAINTEXT" in advice
    what, advice = failure("MUTUAL")
    assert "requires a certificate of the client" in what and "ssl.keystore.location" in advice
    # The other commands have the same advice, of the same certificates.
    for listener, reason in (("EXPIRED", "certificate has expired"), ("FUTURE", "certificate is not yet valid"),
                             ("OTHER", "Hostname mismatch"), ("FOREIGN", "unable to get local issuer certificate")):  # fmt: skip
        _, complaint = run("topics", *secured.flags(listener), "--list", status=1)
        assert f"the certificate of {secured.address[listener]} is not accepted: {reason}" in complaint
        assert f"; {failure(listener)[1]}; " in complaint
    doctor(secured.flags("MUTUAL", ssl_keystore_type="PEM", ssl_keystore_location=secured.client), 0)
    doctor(secured.flags("PLAIN_LOGIN"), 0)


def test_all_commands_take_the_same_properties(secured: Secured, name: str) -> None:
    flags = secured.flags("GOOD")
    run("topics", *flags, "--create", "--topic", name, "--partitions", "2")
    run("perf-produce", *flags, "--topic", name, "--num-records", "3000", "--record-size", "1000", "--throughput", "-1")
    output, _ = run("perf-consume", *flags, "--topic", name, "--num-records", "3000", "--group", name)
    assert "3000" in output
    output, _ = run("perf-consume", *flags, "--topic", name, "--num-records", "3000")
    assert "3000" in output
    run("produce", *flags, "--topic", name, stdin="one\ntwo\n")
    output, _ = run("get-offsets", *flags, "--topic", name)
    assert sum(int(line.rpartition(":")[2]) for line in output.splitlines()) == 3002
    output, _ = run("audit", "keys", *flags, "--topic", name, "--no-groups", "--json")
    output, _ = run("groups", *flags, "--describe", "--group", name)
    assert name in output
    deleted = str(offsets(secured, name))
    run("configs", *flags, "--describe", "--entity-type", "topics", "--entity-name", name)
    run("log-dirs", *flags, "--describe")
    run("broker-api-versions", *flags)
    run("log-cleaner", *flags, "--describe", "--topic", name)
    run("delete-records", *flags, "--offset-json-file", deleted)
    run("cluster", "list-endpoints", *flags)
    run("transactions", *flags, "list")


def offsets(secured: Secured, name: str) -> Path:
    path = secured.folder / "offsets.json"
    path.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 1}], "version": 1}))
    return path


@pytest.mark.parametrize("mutual", [False, True])
def test_the_mirror_speaks_tls_and_sasl_on_both_sides(
    start_broker: Callable[[dict[str, str]], Server], tmp_path: Path, name: str, mutual: bool
) -> None:
    sides = [Secured(start_broker, tmp_path / side) for side in ("source", "target")]
    listener = "MUTUAL" if mutual else "GOOD"
    more = [{"ssl_keystore_type": "PEM", "ssl_keystore_location": side.client} if mutual else {} for side in sides]
    source, target = (side.flags(listener, **each) for side, each in zip(sides, more, strict=True))
    run("topics", *source, "--create", "--topic", name)
    run("produce", *source, "--topic", name, stdin="one\ntwo\nthree\n")
    mirror = ("mirror", "--from", source[1], "--from-command-config", source[3], "--to", target[1], "--to-command-config", target[3])
    # It has a reactor of its own.
    ended = subprocess.run(command(*mirror, "--topic", name, "--until-caught-up"), env=ENVIRONMENT, capture_output=True, text=True,
                           timeout=PATIENCE_S, check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    output, _ = run("consume", *target, "--topic", name, "--from-beginning", "--max-messages", "3")
    assert output.splitlines() == ["one", "two", "three"]
    ended = subprocess.run(command("mirror", "promote", "--to", target[1], "--to-command-config", target[3], "--topic", name),
                           env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # fmt: skip
    assert f"{name}: promoted" in ended.stdout, ended.stderr
    ended = subprocess.run(command("mirror", "--from", source[1], "--to", target[1], "--topic", name, "--from-command-config",
                                   str(tmp_path / "none")), env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S,
                           check=False)  # fmt: skip
    assert ended.returncode == 2
