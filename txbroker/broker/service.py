"""Starts a broker in order, and stops it in the reverse order.

Start: lock the log directories, open the metadata tree, read configurations, load the logs (in workers), bind the sockets, register
the broker, elect a controller, which assigns partitions to it, and accept connections.
Stop: refuse connections, send the last responses, resign as controller, close the tree, sync and close the logs with Kafka's marker
of a clean shutdown. The tree's file is in a log directory, so the directories' locks are released last.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed

from txbroker.action_queue import ActionQueue
from txbroker.broker import settings
from txbroker.broker.access import Access
from txbroker.broker.audit_log import AuditLog
from txbroker.broker.components import Components
from txbroker.broker.dynamic import DynamicConfigs, encrypt_again
from txbroker.broker.environment import Environment
from txbroker.broker.identity import BrokerIdentity, identify, is_clustered, open_tree, uses_zookeeper
from txbroker.broker.leaving import leave_cluster
from txbroker.broker.listening import Listening
from txbroker.broker.membership import Membership
from txbroker.broker.sasl_listeners import SaslListeners
from txbroker.broker.status import Phase, Status
from txbroker.broker.stored_keys import refuse_stored_sasl
from txbroker.broker.tls_listeners import UNLESS_STORED, TlsListeners
from txbroker.broker.token_service import TokenService
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster import node_paths
from txbroker.cluster.config_store import ConfigAdmin, ConfigWatcher
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.node_data import TRANSACTION_VERSION, BrokerRegistration, MalformedNode
from txbroker.cluster.tree.interface import NoSpaceInStore, Refused, Tree, TreeError
from txbroker.cluster.tree.session_tree import SessionTree
from txbroker.config.environment import FirstTopic
from txbroker.config.listeners import parse_listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import topic_settings
from txbroker.errors import StartError, StartInterrupted
from txbroker.log.directories import LogDirectories
from txbroker.log.loading import Progress
from txbroker.log.log_config import LogConfig
from txbroker.names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from txbroker.metrics.endpoint import MetricsEndpoint

T = TypeVar("T")
log = logging.getLogger("txbroker.broker")

WAIT_MARGIN_S = 5.0  # after a session's timeout, until ZooKeeper has ended it


class Broker:
    """One broker. `bound`: the addresses of its listeners, once it has started. `components`: for those who watch it."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        directories: Sequence[str],
        fatal: Callable[[str], None],
        *,
        progress: Progress = lambda directory, done, total: None,
        cluster_id: str | None = None,
        first_topics: Sequence[FirstTopic] = (),
    ) -> None:
        """`directories` are absolute paths. `fatal` is called once with the reason if the broker cannot continue; it stops the process.

        `progress(directory, done, total)` is called in workers with the number of loaded logs. `cluster_id` is for a new cluster.
        `first_topics` are created, if they are missing, when clients are served.
        """
        self._config = config
        self._environment = environment
        self._fatal = fatal
        self._progress = progress
        self._cluster_id = cluster_id
        self._first_topics = first_topics
        self._interrupted = False
        self._waiting: Deferred[Any] = succeed(None)  # for ZooKeeper
        self._failed = False
        self._listeners = parse_listeners(config)
        self._undo: list[tuple[str, Callable[[], Any]]] = []  # the steps of `stop`, last one first
        self._topic_overrides: Callable[[str], Mapping[str, str]] = lambda topic: {}
        self.directories = directories
        self.bound: Mapping[str, tuple[str, int]] = {}
        self.metrics_url: str | None = None  # if metrics are served
        self.broker_id = -1
        self.components: Components | None = None  # once they are made
        self._membership: Membership | None = None
        self._status = Status()
        self._tls: TlsListeners | None = None

    def start(self) -> Deferred[None]:
        """Fires when clients are served. Fails with StartError after closing everything that was opened."""
        return Deferred.fromCoroutine(self._start_or_undo())

    def interrupt(self) -> None:
        """Interrupt a start in progress: it fails soon with StartInterrupted. Call `stop` after that."""
        self._interrupted = True
        self._status.phase = Phase.STOPPING
        self._waiting.cancel()

    def reload_certificates(self) -> None:
        """Load the certificates of all listeners again; a start loads what has changed meanwhile at its end."""
        if self._tls is not None and self._status.phase is Phase.RUNNING:
            self._tls.refresh(always=True)

    def stop(self) -> Deferred[None]:
        """Fires when everything is closed."""
        return Deferred.fromCoroutine(self._stop())

    async def _start_or_undo(self) -> None:
        try:
            await self._start()
        except MalformedNode as error:
            await self._stop()
            remedy = "repair the node in ZooKeeper" if uses_zookeeper(self._config) else "restore its file from a backup"
            raise StartError(f"the metadata is damaged: {error}; {remedy}") from error
        except NoSpaceInStore as error:
            await self._stop()
            raise StartError(f"the disk is full: {error}; free space there") from error
        except TreeError as error:
            await self._stop()
            if not is_clustered(self._config):
                raise
            if not uses_zookeeper(self._config):
                raise StartError(f"the server of the metadata does not serve this broker: {error}; see its lines in the log") from error
            if isinstance(error, Refused):
                raise StartError(str(error)) from error
            raise StartError(f"ZooKeeper does not serve this broker: {error}; see its log") from error
        except GeneratorExit:  # the process ends: nothing can be awaited any more
            raise
        except BaseException:
            await self._stop()
            raise

    async def _interruptible(self, work: Awaitable[T]) -> T:
        """Work that may wait for the metadata; StartInterrupted."""
        if not is_clustered(self._config):
            return await work

        async def run() -> T:
            return await work

        self._waiting = Deferred.fromCoroutine(run())
        try:
            result: T = await self._waiting
        except CancelledError as error:
            raise StartInterrupted("the start was interrupted while it waited for the metadata") from error
        return result

    async def _stop(self) -> None:
        self._status.phase = Phase.STOPPING
        while self._undo:
            what, undo = self._undo.pop()
            log.debug("stop: %s", what)
            try:
                result = undo()
                if isinstance(result, Deferred):
                    await result
            except Exception:
                log.exception("internal error while stopping %s", what)

    def _on_stop(self, what: str, undo: Callable[[], Any]) -> None:
        self._undo.append((what, undo))

    async def _start(self) -> None:
        config, environment = self._config, self._environment
        metrics = self._open_metrics()
        actions = ActionQueue(environment.reactor.callLater)
        listening = Listening(config, environment, actions, self._listeners)
        self._tls = listening.tls
        listening.check()
        directories = self._log_directories()
        stored = directories.open()
        # What can be checked without the metadata: ZooKeeper may keep a start waiting for long.
        audit = AuditLog(config, environment, self._listeners.inter_broker)
        self._on_stop("audit log", audit.stop)
        await audit.start()
        sasl = SaslListeners(config, environment, self._listeners.bound)
        self._on_stop("the keys of tokens", sasl.stop)
        self._read_users_file(sasl)
        if is_clustered(config):
            for problem in listening.tls.problems:
                log.warning("%s%s", UNLESS_STORED, problem)
        tree = await self._interruptible(open_tree(environment, config, directories))
        self._on_stop("metadata tree", tree.close)
        identity = await identify(environment, config, tree, directories, stored, self._cluster_id)
        self.broker_id = identity.broker_id

        quotas = ClientQuotas(
            environment.reactor,
            sample_count=config.int("quota.window.num"),
            sample_s=config.int("quota.window.size.seconds"),
            burst_s=config.int("controller.quota.window.num") * config.int("controller.quota.window.size.seconds"),
        )
        audit.begin(identity.broker_id)
        await self._interruptible(sasl.read_secret(tree))
        keys_read = Deferred.fromCoroutine(sasl.start())
        dynamic = DynamicConfigs(config, quotas, listening.rates, sasl.credentials)
        configs = ConfigWatcher(tree, identity.broker_id, dynamic, environment.reactor, environment.random.random)
        await configs.start()
        await encrypt_again(config, ConfigAdmin(tree), identity.broker_id, environment.random_bytes)
        refuse_stored_sasl(config, self._listeners, identity.broker_id)
        listening.tls.open(identity.broker_id)
        for tls in listening.tls.by_name.values():
            tls.refused = audit.tls_refused
        access = Access(environment, config, tree, audit.trail)
        self._on_stop("ACLs", access.stop)
        await access.start()
        tokens = TokenService(environment, config, tree)
        self._on_stop("delegation tokens", tokens.stop)
        await self._interruptible(tokens.start())
        sasl.use_tokens(tokens.find)
        if isinstance(tree, SessionTree):
            tree.on_renewed(lambda session: self._session_renewed(session, configs, access, tokens))
        dynamic.opening_logs()
        await self._load_logs(directories, configs, tree)

        components = Components(
            environment,
            actions,
            config,
            identity,
            tree,
            directories,
            configs,
            quotas,
            listening.reached(),
            self._listeners.inter_broker,
            listening.tls.client_context(),
            access,
            self._fail,
        )
        self.components = components
        tokens.serve(components.registry, lambda: components.image.controller_id == identity.broker_id)
        self._status.problems = lambda: [*directories.problems(), *components.replicas.refusals()]
        dynamic.wire(directories.reconfigure, listening.reconfigure)
        self._on_stop("listeners", lambda: Deferred.fromCoroutine(listening.close()))
        listening.ports.file_gone(directories.check_file)
        listening.bind(partial(sasl.connection, components.registry))
        self.bound = listening.bound
        self._on_stop("components", components.stop)
        self._on_stop("the topic of the audit log", audit.close_topic)
        components.start()
        self._on_stop("moves between directories", directories.stop)
        directories.start()
        controller = await self._join_cluster(tree, identity, listening, components)
        configs.on_changes(controller.unclean_election_changed)
        # Again, so that stopping begins with the clients; the second close does nothing.
        self._on_stop("listeners", lambda: Deferred.fromCoroutine(listening.close()))
        if is_clustered(config) and config.boolean("controlled.shutdown.enable"):
            self._on_stop("leadership", lambda: self._leave_cluster(components))
        audit.open_topic(components.audit_leaders)
        self._on_stop("lines of the audit log", audit.finish_topic)
        await keys_read
        listening.accept()
        if metrics is not None:
            counts = tree.counts if isinstance(tree, SessionTree) else None
            metrics.add(components.metric_sources(listening, directories, controller, counts, sasl, audit))
        self._status.phase = Phase.RUNNING
        components.make_topics(self._first_topics)

    def _read_users_file(self, sasl: SaslListeners) -> None:
        """Read the file of users, if configured; its modules are imported only then."""
        if self._config.optional_text("txbroker.scram.users.file") is None:
            return
        from txbroker.broker.users_file import UsersFile

        users = UsersFile(self._config, self._environment, sasl.credentials)
        self._on_stop("the file of users", users.stop)
        users.start()

    def _open_metrics(self) -> MetricsEndpoint | None:
        """Open the metrics port, if configured; its modules are imported only then."""
        instruments = self._environment.instruments
        if instruments is None:
            return None
        from txbroker.metrics.endpoint import MetricsEndpoint

        metrics = MetricsEndpoint(self._config, self._environment, instruments, self._status)
        self._on_stop("metrics", lambda: Deferred.fromCoroutine(metrics.stop()))
        metrics.start()
        self.metrics_url = metrics.url
        return metrics

    def _log_directories(self) -> LogDirectories:
        environment = self._environment
        directories = LogDirectories(
            environment.disk,
            environment.later,
            environment.unique_id,
            self.directories,
            config_for=self._log_config,
            random_below=environment.random.randrange,
            producer_id_expiration_ms=lambda: self._config.int("producer.id.expiration.ms"),
        )
        self._status.loading = directories.loading
        self._status.offline = lambda: None if directories.online() else "all log directories are offline"
        self._status.problems = directories.problems
        # From here on every failure closes and unlocks the directories.
        self._on_stop("log directories", lambda: self._close(directories))
        return directories

    def _close(self, directories: LogDirectories) -> Deferred[None]:
        directories.hold()
        return self._environment.in_worker(lambda: directories.close(self._environment.run_all))

    def _log_config(self, topic: str) -> LogConfig:
        made = topic_settings(self._config, self._topic_overrides(topic))
        return settings.log_config(made, is_internal=topic in INTERNAL_TOPICS)

    async def _load_logs(self, directories: LogDirectories, configs: ConfigWatcher, tree: Tree) -> None:
        self._topic_overrides = configs.topic
        await tree.sync()  # a log of a topic that is not listed here would be opened with the default settings, and keep them
        for refused in (await configs.load_topics(await tree.children(node_paths.TOPICS))).values():
            raise refused  # the default retention could delete the records of the topic
        environment = self._environment
        self._status.phase = Phase.LOADING
        await environment.in_worker(
            lambda: directories.load(environment.now_ms(), environment.run_all, self._progress, lambda: self._interrupted)
        )
        self._status.phase = Phase.STOPPING if self._interrupted else Phase.STARTING

    async def _join_cluster(self, tree: Tree, identity: BrokerIdentity, listening: Listening, components: Components) -> Controller:
        session = tree.session if isinstance(tree, SessionTree) else tree
        controller = Controller(
            session,
            self.broker_id,
            listener=self._listeners.inter_broker,
            open_channel=components.open_channel,
            unclean_default=lambda: self._config.boolean("unclean.leader.election.enable"),
            now_ms=self._environment.now_ms,
            call_later=self._environment.reactor.callLater,
            random_bytes=self._environment.random_bytes,
            balance=settings.leader_balance(self._config),
            suspected=components.suspected,
            informed=components.informed,
        )
        membership = self._membership = Membership(
            identity,
            BrokerRegistration(listening.endpoints(), self._config.optional_text("broker.rack"), TRANSACTION_VERSION),
            controller,
            components.topic_admin,
            lambda epoch: components.registered(epoch, controller),
            clock=self._environment.reactor,
            now_ms=self._environment.now_ms,
            wait_s=self._config.int("zookeeper.session.timeout.ms") / 1000 + WAIT_MARGIN_S,
        )
        self._on_stop("controller", controller.stop)
        await self._interruptible(membership.begin(session))
        if is_clustered(self._config):
            self._status.outside = lambda: membership.why_outside() or components.why_without_metadata()
        return controller

    def _leave_cluster(self, components: Components) -> Deferred[None]:
        ask, epoch = components.to_controller.controlled_shutdown, components.isr_requests.broker_epoch
        if self._failed or not len(components.replicas):
            return succeed(None)
        components.leave()
        image = components.image
        return Deferred.fromCoroutine(leave_cluster(self.broker_id, epoch, ask, image, self._config, self._environment.reactor))

    def _fail(self, why: str) -> None:
        self._failed = True
        self._fatal(why)

    async def _session_renewed(self, session: Tree, configs: ConfigWatcher, access: Access, tokens: TokenService) -> None:
        configs.renew()
        access.renew()
        tokens.renew()
        if self._membership is not None:
            try:
                await self._membership.renew(session)
            except StartError as error:
                self._fail(str(error))
