"""`Kafka`: a broker of a test, from start to stop, and what a test does with it."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from txbroker.client.client_errors import NoBroker
from txbroker.client.client_machine import ClientSettings
from txbroker.console.addresses import addresses
from txbroker.console.failures import BadUsage
from txbroker.testing import live_brokers
from txbroker.testing.broker_control import BrokerControl
from txbroker.testing.broker_process import START_TIMEOUT_S, BrokerProcess
from txbroker.testing.brokers import Broker, ClusterMember, LoneBroker, undo
from txbroker.testing.checked_calls import checked
from txbroker.testing.client_settings import client_settings
from txbroker.testing.cluster_settings import check_brokers, cluster_settings
from txbroker.testing.control_client import ControlClient
from txbroker.testing.errors import KitError
from txbroker.testing.journal import Journal
from txbroker.testing.kafka_releases import release_of
from txbroker.testing.moved_clock import read_offset
from txbroker.testing.namespaces import Namespace
from txbroker.testing.records import Reading, Record, produce
from txbroker.testing.reserved_port import reserve
from txbroker.testing.rule_specs import RuleSpec, known_brokers
from txbroker.testing.rules import Rules, When
from txbroker.testing.secured import PLAINTEXT, Security, check_security, security_of
from txbroker.testing.settings import OWN_CLIENT_ID, broker_settings
from txbroker.testing.topics import Administration

DIRECTORY_PREFIX = "txbroker-"
_NOT_STARTED = "the broker has not been started: use it in a with statement, or call start()"
_NO_CONTROL = "this broker has no control: rules, the journal and the clock need a broker that the test kit has started"
CLUSTER = "txbroker.testing.cluster_server"


@checked
class Kafka(BrokerControl):
    """A broker in a process of its own: `with Kafka() as kafka:`. It ends with this process, however that ends.

    `brokers`: more than one are a cluster, with a process for each and one more, without ZooKeeper. Their ports follow `port`.

    `journal` has the requests of clients (`Journal`). It ends, as the rules do, with the process of the broker.

    `as_version`: the release of Kafka whose requests and versions clients see, such as "2.8"; None for those of this broker.

    `security`: SSL, MTLS, SASL_PLAINTEXT or SASL_SSL, with certificates and a user, which `client_config` has.

    `port`: 0 takes a free one. `data`: the directory for its logs; None for a temporary one, which is removed at the end. `topics`: the
    names and numbers of partitions of the first topics. `settings`: keys of Kafka's server.properties; an unknown one is an error.

    Methods raise KitError if an argument is invalid or the broker cannot start, and ClientError if the broker refuses a request.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        port: int = 0,
        data: str | Path | None = None,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, object] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        as_version: str | None = None,
        security: str = PLAINTEXT,
    ) -> None:
        check_brokers(brokers, port)
        check_security(security)
        self._security_value = security
        self._security: Security | None = None  # from the start on
        self._form = [] if as_version is None else ["--as-version", release_of(as_version).name]
        self._count = brokers
        self._port = port
        self._data = data
        self._topics = dict(topics or {})
        self._settings = dict(settings or {})
        self._start_timeout_s = start_timeout_s
        self._directory: Path | None = None
        self._process: BrokerProcess | None = None
        self._reserved: socket.socket | None = None
        self._servers: str | None = None
        self._owner = os.getpid()
        self.is_shared = False
        self._members: Sequence[LoneBroker | ClusterMember] | None = None
        self._log_path: Path | None = None
        self._control = ControlClient(None, _NOT_STARTED)
        self._rules = Rules(self._control, must_be_scoped=False)
        self.journal = Journal(self._control, OWN_CLIENT_ID)

    @classmethod
    def connect(
        cls, bootstrap_servers: str, control_url: str | None = None, *, log_path: Path | None = None, is_shared: bool = False,
        security: Security | None = None,
    ) -> Kafka:  # fmt: skip
        """A broker that runs already, txbroker or Apache Kafka: comma-separated HOST:PORT. It is neither started nor stopped.

        `control_url`: that of another `Kafka`, for rules and the journal. `is_shared`: it has clients of other tests at the same time.
        `security`: that of a broker of this test kit.
        """
        _addresses(bootstrap_servers)
        kafka = cls()
        kafka._servers = bootstrap_servers
        kafka._security = security
        kafka._log_path = log_path
        kafka._control = ControlClient(control_url, _NO_CONTROL)
        kafka.is_shared = is_shared
        kafka._rules = Rules(kafka._control, must_be_scoped=is_shared)
        kafka.journal = Journal(kafka._control, OWN_CLIENT_ID)
        return kafka

    def start(self) -> Self:
        """Start the broker, and return it; without effect if it runs. After `stop` or `kill` it has the same port and data again."""
        if self._servers is not None and (self._process is None or self._process.running):
            return self
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix=DIRECTORY_PREFIX))
        is_first = self._servers is None
        try:
            self._security = security_of(self._security_value, self._directory)
            if self._security is not None:
                self._security.write()
            process = self._new_process(self._directory)
            process.start(self._start_timeout_s)
        except BaseException:
            if is_first:
                self._remove()
            raise
        self._process = process
        self._log_path = process.log_path
        self._control.url = process.control_url
        self._rules.forget()  # those before are gone with the process
        self._servers = process.address if self._count == 1 else ",".join(process.addresses)
        self._port = self.port
        if is_first:
            live_brokers.started.append(self)
            try:
                for name, partitions in self._topics.items():
                    self.create_topic(name, partitions)
            except BaseException:
                self.close()
                raise
        return self

    def _new_process(self, directory: Path) -> BrokerProcess:
        """That of the broker, or of the cluster, which is not started yet; KitError."""
        data = str(directory / "data" if self._data is None else Path(self._data).absolute())
        if self._count == 1:
            if self._reserved is None:
                self._reserved = reserve(self._port)
            settings = broker_settings(self._settings, self._reserved.getsockname()[1], data, self._security)
            return BrokerProcess(directory, settings, self._owner, remove=True, arguments=self._form)
        if self._servers is None:
            ports = [self._port and self._port + number for number in range(self._count)]
        else:
            ports = [port for _, port in _addresses(self._servers)]
        arguments = ["--ports", ",".join(map(str, ports)), "--data", data, "--start-timeout", str(self._start_timeout_s), *self._form]
        arguments += ["--protocol", PLAINTEXT if self._security is None else self._security.protocol]
        settings = cluster_settings(self._settings, self._count, self._security)
        return BrokerProcess(directory, settings, self._owner, remove=True, module=CLUSTER, arguments=arguments)

    def stop(self) -> None:
        """Stop the broker cleanly; its data remains until `close`. KitError if it was not started here."""
        if self._process is None:
            raise KitError("there is no process to stop: the broker was not started here")
        if self._owner == os.getpid():
            self._process.stop()
            self._rules.forget()

    def kill(self) -> None:
        """End the broker like `kill -9`; its data remains until `close`."""
        if self._process is None:
            raise KitError("there is no process to kill: the broker was not started here")
        try:
            if self._count > 1 and self.running:
                self._control.post("/kill")
        finally:  # without their server the brokers end, too
            self._process.kill()
            self._rules.forget()

    def close(self) -> None:
        """Stop the broker and remove its temporary directory."""
        if self._owner == os.getpid():  # a forked process leaves the broker to its parent
            live_brokers.ends(self)
            try:
                if self._count > 1 and self._data is None and self.running:
                    self.kill()  # brokers that all stop at once wait for each other, and nothing is to be kept
                if self._process is not None:
                    self.stop()
            finally:
                self._rules.close(check=False)
                self._remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._process is not None:
                self.end_rules(check=kind is None)
            self._rules.close(check=kind is None)
        finally:
            self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Comma-separated HOST:PORT, for a client's bootstrap.servers."""
        if self._servers is None:
            raise KitError(_NOT_STARTED)
        return self._servers

    @property
    def port(self) -> int:
        """The port of the first bootstrap server."""
        return _addresses(self.bootstrap_servers)[0][1]

    @property
    def pid(self) -> int:
        """The id of the broker's process."""
        return self.process.pid

    @property
    def process(self) -> BrokerProcess:
        """The broker's process; KitError if the broker was not started here."""
        if self._process is None:
            raise KitError("there is no process: the broker was not started here")
        return self._process

    @property
    def running(self) -> bool:
        """Whether the process of the broker runs; False if it was not started here."""
        return self._process is not None and self._process.running

    def log_tail(self) -> str:
        """The end of the broker's log; empty if it was not started here."""
        return "" if self._process is None else self._process.log_tail()

    @property
    def log_path(self) -> Path | None:
        """The file with the broker's log; None if the broker was not started here."""
        return self._log_path

    @property
    def control_url(self) -> str:
        """The URL of the control port; KitError if the broker has none."""
        return self._control.required_url

    @property
    def brokers(self) -> Sequence[Broker]:
        """The brokers, by id; KitError without control."""
        if self._members is None:
            ids = [each["id"] for each in self._control.get("/brokers")["brokers"]]
            alone = self._count == 1 and self._process is not None
            self._members = [
                LoneBroker(id_, self, self._control) if alone else ClusterMember(id_, self._control, self._refuse_shared) for id_ in ids
            ]
        return self._members

    def broker(self, id: int) -> Broker:
        """One of the brokers: `kafka.broker(1).kill()`. KitError if there is none with this id."""
        found = next((each for each in self.brokers if each.id == id), None)
        if found is None:
            raise KitError(f"there is no broker {id}; {known_brokers([each.id for each in self.brokers])}")
        return found

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Broker `to` leads the partition from now on. Returns when all brokers know it. KitError for a broker alone."""
        self._control.post("/leaders", {"topic": topic, "partition": partition, "to": to})

    def move_coordinator(self, key: str, to: int, *, kind: Literal["group", "transaction"] = "group") -> None:
        """Broker `to` coordinates a group, or a transactional id, from now on, and has loaded it. KitError for a broker alone."""
        self._control.post("/coordinators", {"key": key, "to": to, "kind": kind})

    def shrink_isr(self, topic: str, partition: int, to: Sequence[int]) -> None:
        """Keep other replicas than these out of the ISR, until `grow_isr`. The leader must be one of them. KitError for a broker alone."""
        self._control.post("/isr", {"topic": topic, "partition": partition, "to": list(to)})

    def grow_isr(self, topic: str, partition: int) -> None:
        """Let all replicas into the ISR again. Returns when those of brokers that run are in it."""
        self._control.post("/isr", {"topic": topic, "partition": partition})

    def when(
        self,
        api: str = "",
        *,
        topic: str = "",
        partition: int = -1,
        broker: int = -1,
        version: int = -1,
        group: str = "",
        client_id: str = "",
        transactional_id: str = "",
    ) -> When:
        """Begin a rule for faults, about the requests of this name in Kafka's protocol guide, or about all.

        `kafka.when("Produce", topic="orders").on_call(2).error("NOT_LEADER_OR_FOLLOWER")`. Rules act on the clients of the tests, not on
        the methods of this class. A rule ends with its test, or with the broker; UnmatchedRule is raised then if it has never acted.
        """
        spec = RuleSpec(
            api=api, topic=topic, partition=partition, broker=broker, version=version, group=group, client_id=client_id,
            transactional_id=transactional_id,
        )  # fmt: skip
        return When(spec, self._rules, lambda: self.now)

    def reset(self) -> None:
        """Remove all rules of the broker, and take connections again. The clock stays where it is: it cannot go back."""
        self._refuse_shared("the rules of all would be removed")
        self._rules.end(check=False)
        self._post("/reset")

    def end_rules(self, *, check: bool = True) -> None:
        """Remove all rules that were added here, and undo `pause` and `refuse` of brokers.

        With `check` UnmatchedRule if one of the rules has never acted, and EditError if a function of `edit` has failed. A broker that has
        ended has no rules any more.
        """
        if self._process is not None and not self._process.running:
            self._rules.forget()
            self._rules.check_ended(check=check)
            return
        try:
            for each in self._members or ():
                if each.is_changed:
                    each.is_changed = False
                    undo(each)
        finally:
            self._rules.end(check=check)

    def resume(self) -> None:
        """Let the broker go on if it is alone and paused."""
        if self._process is not None and self._process.is_paused:
            self._process.resume()

    @property
    def answers(self) -> bool:
        """Whether the test kit can ask it: it has a control port, runs and is not paused."""
        process = self._process
        return self._control.url is not None and (process is None or (process.running and not process.is_paused))

    def client_config(self, library: str, group: str | None = None) -> dict[str, Any]:
        """The settings with which a client connects: of confluent, librdkafka, java, kafka-python or aiokafka.

        With a group they are those of a consumer, which begins at the first record. KitError for another library.
        """
        return client_settings(library, self.bootstrap_servers, group, self._security)

    def namespace(self, name: str = "test") -> Namespace:
        """Unique names, for a with statement, at whose end the topics and groups of the namespace are deleted."""
        return Namespace(self, name)

    def create_topic(self, name: str, partitions: int = 1, replicas: int = -1, **configs: object) -> str:
        """Create a topic, and return its name when it can be used. `configs`: keys of topics, `_` for a dot: cleanup_policy="compact".

        `replicas`: of each partition; -1 for default.replication.factor, which is up to 3 in a cluster.
        """
        with self._administration() as administration:
            administration.create_topic(name, partitions, replicas, {key.replace("_", "."): value for key, value in configs.items()})
        return name

    def delete_topics(self, *names: str) -> None:
        """Delete topics; those that do not exist are ignored."""
        with self._administration() as administration:
            administration.delete_topics(names)

    def compact(self, topic: str) -> None:
        """Compact a topic now: of each key only the last record is left. Returns when that is done. ClientError if it is not compacted."""
        with self._administration() as administration:
            administration.compact(topic)

    def expire(self, topic: str = "", *, group: str = "", member: str = "", transaction: str = "", session: str = "") -> None:
        """End something now, as by its time limit; returns when that is done. One of:

        - `topic`: delete what retention allows to delete, records of timestamps that are older than retention.ms.
        - `group`, `member` or both: evict all members of a group, or those with a member id, group.instance.id or client id, as after
          their session timeout. Their next request is answered with UNKNOWN_MEMBER_ID.
        - `transaction`: abort the open transaction of a transactional id, as after its timeout, and fence its producer.
        - `session`: that of a broker of a cluster, by its id, as when it has sent nothing for too long: its leaderships move.
          One that is not paused has another session at once.

        KitError if there is no such thing.
        """
        if topic and not (group or member or transaction or session):
            with self._administration() as administration:
                administration.expire(topic)
        elif topic:
            raise KitError("a topic expires alone: call expire() again for the group, member, transaction or session")
        else:
            self._expire(group=group, member=member, transaction=transaction, session=session)

    def trim(self, topic: str, partition: int, before: int) -> int:
        """Delete the records before an offset, -1 for all of them (DeleteRecords); the first offset that is left."""
        with self._administration() as administration:
            return administration.delete_records(topic, partition, before)

    def delete_group(self, name: str) -> bool:
        """Delete a group with its offsets; False if it still has members, which prevents that. Without effect if it does not exist."""
        with self._administration() as administration:
            return administration.delete_group(name)

    def produce(self, topic: str, *records: Record | bytes | str) -> list[int]:
        """Write records, with acks=all, and return their offsets in the same order. The topic must exist.

        Records without a timestamp get the date of the broker's clock.
        """
        with self._reached() as addresses_:
            return produce(addresses_, topic, records, self._client(), self._ahead_ms())

    def records(self, topic: str) -> list[Record]:
        """All records of a topic, by partition and offset, without those of open and aborted transactions."""
        with self._reached() as addresses_, Reading(addresses_, topic, self._client()) as reading:
            return reading.read()

    def consume(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Record]:
        """As `records`, as soon as there are `count` of them or more; KitError if there are fewer after `timeout_s`."""
        with self._reached() as addresses_, Reading(addresses_, topic, self._client()) as reading:
            return reading.wait(count, timeout_s)

    def _ahead_ms(self) -> int:
        """By how much the broker's clock is ahead."""
        if self._log_path is not None and self._count == 1:  # the broker writes its file there
            return read_offset(str(self._log_path.parent)).ms
        return 0 if self._control.url is None else int(self._control.get("/clock")["ahead_ms"])

    @contextmanager
    def _administration(self) -> Iterator[Administration]:
        with self._reached() as addresses_:
            yield Administration(addresses_, self._client())

    def _client(self) -> ClientSettings:
        """Of the test kit's own clients."""
        return ClientSettings(client_id=OWN_CLIENT_ID, security=None if self._security is None else self._security.own())

    @contextmanager
    def _reached(self) -> Iterator[list[tuple[str, int]]]:
        """The addresses of the broker; KitError, in the block too, if it takes no connections because of the test."""
        found, process = _addresses(self.bootstrap_servers), self._process
        if process is not None and not process.running:
            raise KitError("the broker does not run, as it was stopped or killed, or has ended by itself: call start() first")
        if process is not None and process.is_paused:
            raise KitError("the broker is paused: call resume() first")
        try:
            yield found
        except NoBroker:
            if process is None:
                raise
            states = ", ".join(f"broker {each.id} is {each.state}" for each in self.brokers)
            raise KitError(f"no broker takes connections ({states}): call start(), resume() or accept() of one first") from None

    def _remove(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def _addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    try:
        return addresses(bootstrap_servers, "bootstrap_servers")
    except BadUsage as error:
        raise KitError(str(error)) from None
