"""The pytest plugin: fixtures, options and the marker, in runs of pytest of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from tests.testing.leftovers import brokers_in
from tests.testing.suite import Suite

pytestmark = pytest.mark.process


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_a_test_with_two_clients_in_a_group(suite: Suite) -> None:
    suite.write("test_it.py", """
        from confluent_kafka import Consumer, Producer

        def test_it(txbroker, txbroker_topic, txbroker_group):
            producer = Producer(txbroker.client_config("confluent"))
            producer.produce(txbroker_topic, b"value")
            producer.flush()
            members = [Consumer(txbroker.client_config("confluent", txbroker_group)) for _ in range(2)]
            for member in members:
                member.subscribe([txbroker_topic])
            found = []
            while not found:
                for member in members:
                    found += [message.value() for message in member.consume(1, 0.05)]
            for member in members:
                member.close()
            assert found == [b"value"]
        """)  # fmt: skip
    assert "1 passed" in suite.run()
    suite.check_nothing_is_left()


def test_the_plugin_imports_nothing_and_starts_nothing_by_itself() -> None:
    program = """if True:
        import sys, pytest
        before = set(sys.modules)
        import txbroker.testing.pytest_plugin
        print(sorted(set(sys.modules) - before))
        """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, cwd=CHECKOUT, check=True)
    added = ["txbroker", "txbroker.testing", "txbroker.testing.plugin_options", "txbroker.testing.pytest_plugin"]
    assert ended.stdout == f"{added}\n"


MANY = """
    import os, pathlib, pytest

    @pytest.mark.parametrize("number", range(50))
    def test_it(txbroker, txbroker_topic, txbroker_group, number):
        txbroker.produce(txbroker_topic, str(number))
        assert [each.value for each in txbroker.records(txbroker_topic)] == [str(number).encode()]
        pathlib.Path(f"{number}.address").write_text(f"{txbroker.bootstrap_servers} {txbroker_topic} {txbroker_group} {os.getpid()}")
    """


def reports(suite: Suite) -> list[tuple[str, ...]]:
    """Of each test: address, topic, group, process."""
    return [tuple(file.read_text().split()) for file in suite.directory.glob("*.address")]


def test_all_processes_of_xdist_share_one_broker(suite: Suite) -> None:
    suite.write("test_many.py", MANY)
    assert "50 passed" in suite.run("-n", "8", xdist=True)
    addresses, topics, groups, processes = map(set, zip(*reports(suite), strict=True))
    assert (len(addresses), len(topics), len(groups)) == (1, 50, 50) and len(processes) > 1
    suite.check_nothing_is_left()


def test_each_process_can_have_a_broker_of_its_own(suite: Suite) -> None:
    suite.write("test_many.py", MANY)
    assert "50 passed" in suite.run("-n", "2", "--txbroker-per-worker", "--dist=load", "--maxschedchunk=1", xdist=True)
    pairs = {(process, address) for address, _, _, process in reports(suite)}
    assert len(pairs) == 2 and len({address for _, address in pairs}) == 2
    suite.check_nothing_is_left()


def test_a_killed_worker_leaves_the_broker_to_the_others(suite: Suite) -> None:
    suite.write("test_kill.py", """
        import os, pathlib, pytest

        @pytest.mark.parametrize("number", range(6))
        def test_it(txbroker, number):
            pathlib.Path(f"{number}.address").write_text(txbroker.bootstrap_servers)
            if number in (0, 3):
                os.kill(os.getpid(), 9)
        """)  # fmt: skip
    output = suite.run("-n", "2", xdist=True, status=1)
    assert "2 failed, 4 passed" in output
    assert len(set(reports(suite))) == 1 and len(reports(suite)) == 6
    suite.check_nothing_is_left()


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_no_broker_is_left_when_pytest_is_killed(arguments: tuple[str, ...], suite: Suite) -> None:
    suite.write("test_wait.py", """
        import os, pathlib, signal, pytest

        @pytest.mark.parametrize("number", range(2))
        def test_it(txbroker, number):
            pathlib.Path(f"{os.getpid()}.waits").touch()
            signal.pause()
        """)  # fmt: skip
    with suite.running(*arguments, xdist=bool(arguments)) as process:
        until(lambda: list(suite.directory.glob("*.waits")), "a test has a broker")
        assert len(brokers_in(suite.temporary)) == 1
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    suite.check_nothing_is_left()


def test_the_marker_gives_a_test_a_broker_with_other_settings(suite: Suite) -> None:
    suite.write("pytest.ini", """
        [pytest]
        addopts = --strict-markers
        txbroker_settings =
            num.partitions=2
            message.max.bytes=5000
        txbroker_topics = ready:3
        txbroker_port =
        """)  # fmt: skip
    suite.write("test_marker.py", """
        import pytest
        from txbroker.client.client_errors import RequestFailed

        def sizes(kafka):
            "Whether a record of 8,000 bytes, and one of 2,000 bytes, is accepted, or the error."
            found = []
            for size in (8000, 2000):
                try:
                    found.append(kafka.produce("ready", b"x" * size) != [])
                except RequestFailed as error:
                    found.append(error.code)
            return found

        seen = []

        def test_without(txbroker):
            assert sizes(txbroker) == [10, True]
            seen.append(txbroker.bootstrap_servers)

        @pytest.mark.txbroker(settings={"message.max.bytes": 1000})
        class TestClass:
            def test_class(self, txbroker):
                assert sizes(txbroker) == [10, 10]
                seen.append(txbroker.bootstrap_servers)

            @pytest.mark.txbroker(settings={"message.max.bytes": 9000})
            def test_nearest(self, txbroker, txbroker_topic):
                assert sizes(txbroker) == [True, True]
                assert txbroker_topic.startswith("test_nearest-")
                seen.append(txbroker.bootstrap_servers)

        @pytest.mark.txbroker
        def test_again(txbroker):
            assert sizes(txbroker) == [10, True]

        def test_different_brokers():
            assert len(set(seen)) == 3
        """)  # fmt: skip
    assert "5 passed" in suite.run()


@pytest.mark.parametrize(("marker", "arguments", "problem"), [
    ("settings={}", "", "has the marker txbroker, but does not use the fixture txbroker: add it to the arguments, or remove the marker"),
    ("setings={}", "txbroker", "the marker txbroker takes only settings={key: value}, as_version= and security=, not setings={}"),
    ("settings=3", "txbroker", "the marker txbroker takes only settings={key: value}, as_version= and security=, not 3"),
    ("settings={'num.partitons': 3}", "txbroker",
     "the broker did not start: num.partitons is not a known key (did you mean num.partitions?); correct or remove it"),
], ids=["no fixture", "another argument", "another type", "unknown setting"])  # fmt: skip
def test_a_wrong_marker(marker: str, arguments: str, problem: str, suite: Suite) -> None:
    suite.write("test_marker.py", f"""
        import pytest

        @pytest.mark.txbroker({marker})
        def test_it({arguments}): pass
        """)  # fmt: skip
    output = suite.run(status=1 if "did not start" in problem else 2)
    assert any(line.endswith(problem) for line in output.splitlines()), output


@pytest.mark.parametrize(("option", "problem"), [
    ("--txbroker-port=x", "txbroker_port is 'x'; it must be a number from 0 to 65535 (--txbroker-port)"),
    ("--txbroker-partitions=0", "txbroker_partitions is '0'; it must be a number from 1 to 10000 (--txbroker-partitions)"),
    ("--txbroker-setting=x", "txbroker_settings has 'x'; it must be KEY=VALUE, such as num.partitions=3 (--txbroker-setting)"),
    ("--txbroker-topic=a:b", "txbroker_topics has 'a:b'; it must be NAME or NAME:PARTITIONS, such as orders:3 (--txbroker-topic)"),
    ("--txbroker-prot=1", "unrecognized arguments: --txbroker-prot=1"),
    ("--txbroker-bootstrap-servers=localhost:1 --txbroker-security=SSL --txbroker-as-version=2.8",
     "(txbroker_bootstrap_servers), on which --txbroker-as-version, --txbroker-security would have no effect: remove one or the other"),
    ("--txbroker-bootstrap-servers=localhost:1 --txbroker-port=2 --txbroker-per-worker",
     "(txbroker_bootstrap_servers), on which --txbroker-port, --txbroker-per-worker would have no effect: remove one or the other"),
])  # fmt: skip
def test_a_wrong_option(option: str, problem: str, suite: Suite) -> None:
    suite.write("test_it.py", "def test_it(): pass\n")
    output = suite.run(*option.split(), status=4)
    assert [line for line in output.splitlines() if line.endswith(problem)] != [], output


def test_a_port_in_use_and_a_port_for_each_of_several_brokers(suite: Suite, broker: Server) -> None:
    suite.write("test_it.py", "def test_it(txbroker): pass\n")
    output = suite.run(f"--txbroker-port={broker.port}", status=1)
    problem = f"port {broker.port} is in use; stop what uses it, or specify no port, and a free one is taken"
    assert output.count(problem) <= 2, "once in the report, and once in the summary"
    assert problem in output and "During handling" not in output
    output = suite.run("-n1", f"--txbroker-port={broker.port}", "--txbroker-per-worker", xdist=True, status=1)
    assert "remove --txbroker-per-worker, or the port" in output


def test_a_broker_that_runs_already(suite: Suite, broker: Server, name: str) -> None:
    suite.write("test_it.py", f"""
        import pytest

        def test_it(txbroker, txbroker_topic, txbroker_group):
            assert txbroker.bootstrap_servers == "{broker.address}"
            assert txbroker.produce(txbroker_topic, "value") == [0]
            assert [each.value for each in txbroker.records(txbroker_topic)] == [b"value"]
            assert txbroker.records("{name}") == []

        @pytest.mark.txbroker(settings={{"num.partitions": 3}})
        def test_settings(txbroker): pass
        """)  # fmt: skip
    suite.write("pytest.ini", "[pytest]\ntxbroker_settings = num.partitions=2\n")
    for _ in range(2):  # the topic is not created twice
        output = suite.run(f"--txbroker-bootstrap-servers={broker.address}", f"--txbroker-topic={name}:2", status=1)
        assert "1 passed, 1 warning, 1 error" in output
        assert "leave this test out with -m 'not txbroker'" in output
        assert "a broker that runs already (txbroker_bootstrap_servers), on which txbroker_settings has no effect" in output


def test_more_brokers_and_asyncio(suite: Suite) -> None:
    suite.write("test_it.py", """
        import asyncio
        from aiokafka import AIOKafkaConsumer

        async def read(kafka, topic, group):
            async with AIOKafkaConsumer(topic, **kafka.client_config("aiokafka", group)) as consumer:
                return (await consumer.getone()).value

        def test_asyncio(txbroker, txbroker_topic, txbroker_group):
            txbroker.produce(txbroker_topic, "value")
            assert asyncio.run(read(txbroker, txbroker_topic, txbroker_group)) == b"value"

        def test_factory(txbroker, txbroker_factory):
            with txbroker_factory(settings={"num.partitions": 3}, topics={"own": 1}) as other:
                other.produce("own", "value")
                assert other.port != txbroker.port
            txbroker_factory().start()  # ends with the session
        """)  # fmt: skip
    assert "2 passed" in suite.run()
    suite.check_nothing_is_left()


def test_a_failing_test_shows_the_requests_of_its_clients(suite: Suite) -> None:
    suite.write("test_it.py", """
        from confluent_kafka import Producer

        def send(txbroker, topic, client_id):
            producer = Producer({**txbroker.client_config("confluent"), "client.id": client_id})
            producer.produce(topic, b"value")
            producer.flush()

        def test_passes(txbroker, txbroker_topic):
            send(txbroker, txbroker_topic, "earlier")

        def test_fails(txbroker, txbroker_topic):
            txbroker.when("Produce", topic=txbroker_topic).error("MESSAGE_TOO_LARGE")
            send(txbroker, txbroker_topic, "later")
            assert txbroker.records(txbroker_topic) != []

        def test_fails_without_a_broker():
            assert False
        """)  # fmt: skip
    for arguments in ((), ("-n", "1")):
        output = suite.run(*arguments, xdist=bool(arguments), status=1)
        assert "2 failed, 1 passed" in output and output.count("- requests to 127.0.0.1:") == 1
        shown = output.partition("- requests to 127.0.0.1:")[2]
        produces = [line for line in shown.splitlines() if " Produce v" in line]
        assert len(produces) == 1 and " later Produce " in produces[0] and "answered MESSAGE_TOO_LARGE (rule " in produces[0], output
        assert "earlier" not in shown and "txbroker-testing" not in shown


def test_a_failing_test_shows_the_requests_to_other_brokers_too(suite: Suite) -> None:
    suite.write("test_it.py", """
        import contextlib, unittest, pytest
        from confluent_kafka import Producer
        from txbroker.testing import Kafka, KafkaMixin

        def send(kafka, topic, client_id):
            producer = Producer({**kafka.client_config("confluent"), "client.id": client_id})
            producer.produce(topic, b"value")
            producer.flush()

        @pytest.fixture(scope="module")
        def own():
            with Kafka(topics={"own": 1}) as kafka:
                yield kafka

        def test_passes(own):
            send(own, "own", "earlier")

        def test_own(own):
            send(own, "own", "of-fixture")
            assert False

        def test_factory(txbroker_factory):
            with contextlib.closing(txbroker_factory(topics={"own": 1})) as kafka:
                kafka.start()
                send(kafka, "own", "of-factory")
                assert False

        class Test(KafkaMixin, unittest.TestCase):
            def test_passes(self):
                send(self.kafka, self.namespace.topic(), "earlier")

            def test_refuses(self):
                self.kafka.broker(0).refuse()

            def test_then_fails(self):
                send(self.kafka, self.namespace.topic(), "of-class")
                self.fail()
        """)  # fmt: skip
    output = suite.run(status=1)
    assert "3 failed, 3 passed" in output and output.count("- requests to 127.0.0.1:") == 3, output
    produces = [line.split()[3] for line in output.splitlines() if " Produce v" in line]
    assert produces == ["of-fixture", "of-factory", "of-class"], output


def test_what_a_test_does_to_the_broker_ends_with_it(suite: Suite) -> None:
    suite.write("test_it.py", """
        def test_refuses(txbroker):
            txbroker.broker(0).refuse()

        def test_produces(txbroker, txbroker_topic):
            assert txbroker.produce(txbroker_topic, "value") == [0]

        def test_pauses_and_fails(txbroker):
            txbroker.broker(0).refuse()
            txbroker.broker(0).pause()
            assert False

        def test_produces_again(txbroker, txbroker_topic):
            assert txbroker.produce(txbroker_topic, "value") == [0]
        """)  # fmt: skip
    assert "1 failed, 3 passed" in suite.run(status=1)


def test_a_traceback_ends_in_the_test(suite: Suite) -> None:
    suite.write("test_it.py", """
        from datetime import timedelta

        def test_absent(txbroker):
            txbroker.produce("absent", "value")

        def test_setting(txbroker_factory):
            with txbroker_factory(settings={"num.partitons": 3}):
                pass

        def test_clock(txbroker):
            with txbroker.at(timedelta(0)):
                pass

        def test_rule(txbroker):
            with txbroker.when("Produce").disconnect():
                pass

        def test_rule_of_test(txbroker):
            txbroker.when("Fetch").disconnect()

        def test_type(txbroker):
            txbroker.trim("topic", "0", 5)

        def test_not_started(txbroker_factory):
            txbroker_factory().when("Fetch").disconnect()
        """)  # fmt: skip
    output = suite.run(status=1)
    assert "7 failed" in output
    lines = [line for line in output.splitlines() if ".py:" in line and not line.startswith(("test_it.py:", "FAILED "))]
    assert lines == [], output
    for problem in (
        "TopicMissing: topic absent does not exist", "KitError: the broker did not start: num.partitons is not a known key",
        "KitError: seconds is 0: a scope of at() must be ahead", "UnmatchedRule: the rule Produce() times(1): disconnect has never acted",
        "the rule Fetch() times(1): disconnect has never acted", "KitError: trim(): partition is '0'; it must be a whole number",
        "KitError: the broker has not been started: use it in a with statement, or call start()",
    ):  # fmt: skip
        assert problem in output


def test_a_rule_ends_with_its_test_and_must_have_acted(suite: Suite) -> None:
    suite.write("test_it.py", """
        from kafka import KafkaProducer

        def send(txbroker, topic):
            with KafkaProducer(**txbroker.client_config("kafka-python"), retries=0) as producer:
                return producer.send(topic, b"value").get(60).offset

        def test_never_acts(txbroker, txbroker_topic):
            txbroker.when("Produce", topic=txbroker_topic + "x").always().disconnect()

        def test_optional(txbroker, txbroker_topic):
            txbroker.when("Produce", topic=txbroker_topic).optional().always().disconnect()

        def test_fails_itself(txbroker, txbroker_topic):
            txbroker.when("Produce", client_id="client").always().disconnect()
            assert False, "its own failure"

        def test_no_rule_is_left(txbroker, txbroker_topic):
            assert send(txbroker, txbroker_topic) == 0

        def test_factory(txbroker_factory):
            with txbroker_factory(topics={"own": 1}) as other:
                other.when("Produce").error("MESSAGE_TOO_LARGE")
        """)  # fmt: skip
    output = suite.run(status=1)
    assert "3 failed, 2 passed" in output
    assert output.count("has never acted: correct what it matches, or add .optional()") >= 2
    assert "AssertionError: its own failure" in output


def test_a_shared_broker_that_a_test_has_killed_concerns_no_test_without_it(suite: Suite) -> None:
    suite.write("test_it.py", """
        import os, signal, socket

        def kill(txbroker):
            txbroker.when("Produce", client_id="client").disconnect()
            os.kill(int((txbroker.log_path.parent / "pid").read_text()), signal.SIGKILL)
            while True:
                try:
                    socket.create_connection(("127.0.0.1", txbroker.port)).close()
                except OSError:
                    break

        def test_fails(txbroker):
            kill(txbroker)
            assert False, "its own failure"

        def test_without_a_broker(): pass
        """)  # fmt: skip
    output = suite.run("-n", "1", xdist=True, status=1)
    assert "1 failed, 1 passed" in output and "its own failure" in output


@pytest.mark.extended
def test_a_test_fails_with_the_exception_of_a_function(suite: Suite) -> None:
    suite.write("test_it.py", """
        from confluent_kafka import Producer

        def change(answer):
            raise ValueError("wrong answer")

        def test_fails(txbroker, txbroker_topic):
            txbroker.when("Metadata", topic=txbroker_topic).edit(change)
            assert txbroker_topic in Producer(txbroker.client_config("confluent")).list_topics(txbroker_topic).topics

        def test_passes(txbroker, txbroker_topic):
            rule = txbroker.when("Metadata", topic=txbroker_topic).edit(lambda answer: None)
            assert txbroker_topic in Producer(txbroker.client_config("confluent")).list_topics(txbroker_topic).topics
            assert rule.hits == 1
        """)  # fmt: skip
    output = suite.run("-n", "1", xdist=True, status=1)
    assert "1 failed, 1 passed" in output
    assert "edit has not edited an answer: the function raised ValueError: wrong answer (test_it.py:5)" in output
    assert output.count('raise ValueError("wrong answer")') == 1, "the traceback of the function is in the log"
    assert "not edited: the function raised ValueError: wrong answer (test_it.py:5)" in output, "so is the journal"


def test_a_rule_on_a_shared_broker_names_what_belongs_to_its_test(suite: Suite) -> None:
    suite.write("test_it.py", """
        import pytest
        from txbroker.testing import KitError

        def test_it(txbroker, txbroker_topic):
            with pytest.raises(KitError, match="the processes of pytest-xdist share this broker.*: name a topic, group"):
                txbroker.when("Metadata").disconnect()
            txbroker.when("Metadata", topic=txbroker_topic).optional().disconnect()
            for call in (txbroker.reset, txbroker.broker(0).refuse, txbroker.broker(0).pause):
                with pytest.raises(KitError, match="the processes of this test run share the broker, and .*: take a broker of"):
                    call()
        """)  # fmt: skip
    assert "1 passed" in suite.run("-n", "1", xdist=True)


def test_unittest(suite: Suite) -> None:
    suite.write("test_it.py", """
        import unittest
        from confluent_kafka import Producer
        from txbroker.testing import KafkaMixin

        seen = set()

        class First(KafkaMixin, unittest.TestCase):
            def test_it(self):
                topic = self.namespace.topic(partitions=2)
                self.kafka.produce(topic, "value")
                self.assertEqual([each.value for each in self.kafka.consume(topic)], [b"value"])
                seen.add(self.kafka.bootstrap_servers)

        class Second(First):
            pass

        class Third(First):
            kafka_settings = {"num.partitions": 3}

            def test_servers(self):
                self.assertEqual(len(seen), 2)

        class OfAnEarlierRelease(KafkaMixin, unittest.TestCase):
            kafka_as_version = "2.8"
            kafka_security = "SASL_SSL"

            def test_it(self):
                self.assertNotIn(self.kafka.bootstrap_servers, seen)
                config = self.kafka.client_config("confluent")
                self.assertEqual(config["security.protocol"], "SASL_SSL")
                client = Producer(config)
                client.produce(self.namespace.topic(), b"value")
                self.assertEqual(client.flush(60), 0)
                self.assertEqual(self.kafka.journal.where(api="Produce")[0].version, 9)

        if __name__ == "__main__":
            unittest.main()
        """)  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(suite.temporary), "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-W", "error::ResourceWarning", "-m", "unittest", "test_it"]
    ended = subprocess.run(
        command, cwd=suite.directory, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0 and "Ran 5 tests" in ended.stderr, ended.stderr
    suite.check_nothing_is_left()


def test_trial(suite: Suite) -> None:
    suite.write("test_it.py", """
        from twisted.internet.threads import deferToThread
        from twisted.trial import unittest
        from txbroker.testing import KafkaMixin

        class Test(KafkaMixin, unittest.TestCase):
            def test_it(self):
                topic = self.namespace.topic()
                return deferToThread(self.kafka.produce, topic, "value").addCallback(self.assertEqual, [0])
        """)  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(suite.temporary), "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-m", "twisted.trial", "test_it"]
    ended = subprocess.run(
        command, cwd=suite.directory, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0 and "Ran 1 tests" in ended.stdout, ended.stdout + ended.stderr
    suite.check_nothing_is_left()


@pytest.mark.extended
def test_options_of_the_release_and_of_security(suite: Suite) -> None:
    suite.write("test_it.py", """
        import pytest

        def test_options(txbroker, txbroker_topic):
            assert txbroker.client_config("java")["security.protocol"] == "SASL_PLAINTEXT"
            assert txbroker.produce(txbroker_topic, "value") == [0]

        @pytest.mark.txbroker(security="PLAINTEXT", as_version="3.9")
        def test_marker(txbroker, txbroker_topic):
            assert "security.protocol" not in txbroker.client_config("java")
            assert txbroker.produce(txbroker_topic, "value") == [0]

        @pytest.mark.txbroker(security="TLS")
        def test_wrong(txbroker): pass
        """)  # fmt: skip
    output = suite.run("--txbroker-security=SASL_PLAINTEXT", "--txbroker-as-version=2.8", "-n", "2", xdist=True, status=1)
    assert "2 passed, 1 error" in output and "security is 'TLS'; it must be one of PLAINTEXT, SSL" in output
