"""The tests of SASL and ACLs that the Go clients publish with their modules, on txbroker and Apache Kafka: `python -m compat.upstream`.

Go downloads the modules and builds the tests. They run in a network namespace of their own, because kafka-go's tests connect to
localhost:9092 and, with SASL, to localhost:9093, where each broker listens in turn. Each line is a test, with its outcome on each broker.
The exit status is 1 if a test does not pass on the first broker, and 3 if this machine cannot run them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.security.test_sasl_brokers import set_password
from tests.support import cache, network
from tests.support.broker import BrokerProcess
from tests.support.cache import Missing
from tests.support.kafka import KafkaProcess
from tests.support.raw_admin import create_topic
from tests.support.server import Server

PLAIN, SASL = "127.0.0.1:9092", "127.0.0.1:9093"
_GO_PLACES = ("/usr/local/go/bin",)
_OUTCOME = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_LIMIT = "120s"
CANNOT_RUN = 3
# The users of kafka-go's tests; franz-go's take one from the environment.
_PASSWORDS = {"adminscram256": "admin-secret-256", "adminscram512": "admin-secret-512"}
_TOPIC = "test-writer-0"


@dataclass(frozen=True)
class Suite:
    """Tests of a module whose names match a pattern."""

    name: str
    module: str
    version: str
    packages: Sequence[str]
    pattern: str
    environment: Mapping[str, str] = field(default_factory=dict)


SUITES = (
    Suite(
        "kafka-go", "github.com/segmentio/kafka-go", "v0.4.51", ("github.com/segmentio/kafka-go", "github.com/segmentio/kafka-go/sasl"),
        "ACL|Scram|SASL", {"KAFKA_VERSION": "4.0.0"},
    ),
    Suite(
        "franz-go", "github.com/twmb/franz-go", "v1.22.2", ("github.com/twmb/franz-go/pkg/kgo",),
        "SCRAM", {"KGO_SEEDS": PLAIN, "KGO_TEST_SCRAM_SEEDS": SASL, "KGO_TEST_SCRAM": "adminscram256:admin-secret-256"},
    ),
)  # fmt: skip


def programs(suite: Suite) -> list[Path]:
    """The tests of each package as a program, built once for each version; Missing if Go is not installed or cannot build them."""
    folder = cache.directory() / "compat" / f"{suite.name}-tests-{suite.version}"
    made = [folder / f"{number}.test" for number, _ in enumerate(suite.packages)]
    if all(path.exists() for path in made):
        return made
    go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), *_GO_PLACES]))
    if go is None:
        raise Missing("Go is not installed: see https://go.dev/doc/install, or on Debian apt-get install golang-go")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:  # others may build and run them at the same time
        place = Path(name)
        (place / "go.mod").write_text(f"module upstream\n\ngo 1.24\n\nrequire {suite.module} {suite.version}\n")
        (place / "upstream.go").write_text("package upstream\n\n" + "".join(f'import _ "{package}"\n' for package in suite.packages))
        steps = [["mod", "tidy"], *(["test", "-c", "-o", path.name, package] for path, package in zip(made, suite.packages, strict=True))]
        for step in steps:
            built = subprocess.run([go, *step], cwd=place, capture_output=True, text=True, check=False)
            if built.returncode:
                raise Missing(f"the tests of {suite.name} cannot be built: go {' '.join(step)}:\n{built.stderr}")
        folder.mkdir(exist_ok=True)
        for path in made:
            (place / path.name).replace(path)
    return made


def broker(kind: str, directory: Path) -> Server:
    """A broker with SASL and an authorizer, which allows what no ACL is about."""
    kafka = KafkaProcess(directory) if kind == KafkaProcess.kind else None
    server = kafka or BrokerProcess(directory)
    server.port = int(PLAIN.rpartition(":")[2])
    listeners, names = f"PLAINTEXT://{PLAIN},SASL_PLAINTEXT://{SASL}", "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    modules = "org.apache.kafka.common.security"
    scram = f"{modules}.scram.ScramLoginModule required;"
    server.overrides |= {
        "node.id": "1",
        "listeners": listeners if kafka is None else f"{listeners},CONTROLLER://127.0.0.1:{kafka.controller_port}",
        "advertised.listeners": listeners.replace("127.0.0.1", "localhost"),
        "listener.security.protocol.map": names if kafka is None else f"{names},CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config":
            f'{modules}.plain.PlainLoginModule required user_adminplain="admin-secret";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": scram,
        "authorizer.class.name":
            "kafka.security.authorizer.AclAuthorizer" if kafka is None else "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS;User:adminplain",
    }  # fmt: skip
    return server


def outcomes(kind: str, suites: Sequence[Suite]) -> dict[str, str]:
    """PASS, FAIL or SKIP of each test, by suite and name, in a network namespace; what a failed program printed is printed."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="txbroker-upstream-") as name:
        server = broker(kind, Path(name) / "broker")
        try:
            server.start()
            create_topic(server, _TOPIC)
            for user, password in _PASSWORDS.items():
                assert set_password(server.address, user, password) == [(user, 0)]
            for suite in suites:
                for program in programs(suite):
                    command: list[str | Path] = [program, "-test.v", "-test.run", suite.pattern, "-test.timeout", _LIMIT]
                    environment = {**os.environ, **suite.environment}
                    ended = subprocess.run(command, env=environment, cwd=name, capture_output=True, text=True, check=False)
                    if ended.returncode:
                        print(f"{suite.name} on {kind}:\n{ended.stdout[-5000:]}{ended.stderr[-2000:]}", file=sys.stderr)
                    found |= {f"{suite.name} {test}": outcome for outcome, test in _OUTCOME.findall(ended.stdout)}
        finally:
            server.kill()
    return found


def main(arguments: Sequence[str]) -> int:
    """The command line: kinds of brokers, by default txbroker and Kafka."""
    if not network.inside():
        try:
            for suite in SUITES:  # the namespace has no way to download
                programs(suite)
        except Missing as problem:
            print(problem, file=sys.stderr)
            return CANNOT_RUN
        print(network.enter("compat.upstream", arguments), file=sys.stderr)
        return CANNOT_RUN
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    kinds = list(arguments) or [BrokerProcess.kind, KafkaProcess.kind]
    found = {kind: outcomes(kind, SUITES) for kind in kinds}
    names = sorted({name for of_kind in found.values() for name in of_kind})
    width = max(map(len, names), default=0)
    for name in names:
        print(f"{name:<{width}}", *(found[kind].get(name, "-") for kind in kinds))
    return int(not names or any(found[kinds[0]].get(name) != "PASS" for name in names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
