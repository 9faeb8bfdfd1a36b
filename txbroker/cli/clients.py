"""Clients of kafka-python for the commands: their settings from flags and Java's property names, and clear errors.

kafka-python is imported when a client is created, since `txbroker run` does not need it.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from txbroker.cli.full_disks import explained
from txbroker.cli.own_connections import check, has_library_tls, own_settings, security_of, unreachable
from txbroker.cli.own_connections import read_properties as read_properties
from txbroker.client.blocking_connection import connect
from txbroker.client.client_errors import Unreachable
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import HANDLER_KEY, is_oauth
from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.jaas import InvalidJaas, parse_jaas
from txbroker.config.oauthbearer import TOKEN_KEY
from txbroker.console.addresses import addresses
from txbroker.console.failures import BadUsage, CommandFailed, broker_error, warn
from txbroker.errors import ErrorCode
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import TlsProblem, read_settings

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
BOOTSTRAP_TIMEOUT_MS = 10_000
NOTICE_EVERY_S = 15.0
RETRY_S = 0.1
# Errors after which a broker may be the reason that cannot be reached at its advertised address.
_MAY_BE_UNREACHABLE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE,
                       ErrorCode.COORDINATOR_NOT_AVAILABLE)  # fmt: skip
LAST_FLUSH_S = 5.0  # for records that were given to a producer before a command fails
NOTHING: Mapping[str, Any] = {}

_OF_TOKEN = (TOKEN_KEY, HANDLER_KEY)  # what `_token` reads
_TRUTH = {"true": True, "false": False}
# kafka-python's settings that are None by default and can be given as text; its other settings of this kind are objects.
_INTEGERS_WITHOUT_DEFAULT = frozenset({"receive_buffer_bytes", "send_buffer_bytes"})
_TEXTS_WITHOUT_DEFAULT = frozenset({
    "client_id", "group_id", "group_instance_id", "compression_type", "proxy_url", "sasl_mechanism", "sasl_plain_username",
    "sasl_plain_password", "sasl_kerberos_domain_name", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_crlfile",
    "ssl_ciphers",
})


# Properties of producers and consumers that are refused instead of ignored, since ignoring them changes what is written or read. By key: a
# setting that only this kind of client has, the value that is accepted, and the reason.
_REFUSED = {
    "transactional.id": ("transactional_id", "", "use --transactional-id of `txbroker produce`"),
    "group.protocol": ("group_id", "classic", "this command joins groups by the classic protocol; leave it out"),
}


def settings(properties: Mapping[str, str], known: Mapping[str, object]) -> dict[str, Any]:
    """A Java client's properties as kafka-python's settings, by its defaults `known`.

    As in Java's clients, an unknown property only causes a warning. BadUsage for an invalid value, and for a property that must not be
    ignored.
    """
    made: dict[str, Any] = {}
    has_token = is_oauth(properties)
    for key, text in properties.items():
        if key in _REFUSED and _REFUSED[key][0] in known:
            _, accepted, reason = _REFUSED[key]
            if text.strip().lower() != accepted:
                raise BadUsage(f"{key}={text} is not supported: {reason}")
            continue
        if has_token and (key in _OF_TOKEN or key == "sasl.jaas.config"):
            continue
        if key == "sasl.jaas.config":
            made |= _user(text)
            continue
        if key == "bootstrap.servers" or (key.startswith("ssl.") and key in BROKER_KEYS):
            continue  # the flag names the servers, as in Kafka's tools; `_tls` reads the keys of TLS
        name = key.replace(".", "_").replace("-", "_")
        if name in known and _can_be_text(name, known[name]):
            made[name] = _typed(key, text.strip(), name, known[name])
        else:
            warn(f"{key} is not known to the client library and is ignored")
    if "security_protocol" in made:
        made["security_protocol"] = made["security_protocol"].upper()
    return made | _tls(properties) | (_token(properties) if has_token else {})


def _token(properties: Mapping[str, str]) -> dict[str, Any]:
    """Where tokens of OAUTHBEARER come from, as kafka-python's setting; BadUsage."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    security = security_of(properties)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return security.sasl.token.token() if security is not None and security.sasl is not None and security.sasl.token else ""

    return {"sasl_oauth_token_provider": Provider()}


def _tls(properties: Mapping[str, str]) -> dict[str, Any]:
    """The stores of a Java client, as kafka-python's setting; BadUsage."""
    if "SSL" not in properties.get("security.protocol", "").upper() or has_library_tls(properties):
        return {}
    try:
        return {"ssl_context": client_context(read_settings(properties.get))}
    except TlsProblem as problem:
        raise BadUsage(str(problem)) from None


def _user(jaas: str) -> dict[str, str]:
    """The user of a login configuration, as kafka-python's settings; BadUsage."""
    try:
        options = parse_jaas(jaas).options
    except InvalidJaas as error:
        raise BadUsage(f"sasl.jaas.config {error}") from None
    if "username" not in options or "password" not in options:
        raise BadUsage("sasl.jaas.config has no username and password")
    return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def _can_be_text(name: str, default: object) -> bool:
    return isinstance(default, (bool, int, float, str)) or name in _INTEGERS_WITHOUT_DEFAULT | _TEXTS_WITHOUT_DEFAULT


def _typed(key: str, text: str, name: str, default: object) -> object:
    if name == "acks":
        return text if text == "all" else _integer(key, text)
    if name == "compression_type":
        return None if text == "none" else text
    if isinstance(default, bool):
        if text.lower() not in _TRUTH:
            raise BadUsage(f"{key} is {text!r}; it must be true or false")
        return _TRUTH[text.lower()]
    if name in _INTEGERS_WITHOUT_DEFAULT or isinstance(default, (int, float)):
        return _integer(key, text)
    return text


def _integer(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadUsage(f"{key} is {text!r}; it must be a whole number") from None


def check_reachable(servers: str) -> None:
    """CommandFailed unless one of the servers accepts a connection. kafka-python would retry for long, without a reason."""
    refused = []
    for host, port in addresses(servers):
        try:
            connect(host, port, CONNECT_TIMEOUT_S).close()
            return
        except Unreachable as error:
            refused.append(str(error).removeprefix("no connection to "))
    raise CommandFailed(f"no connection to {', '.join(refused)}; start a broker with `txbroker run`, or correct --bootstrap-server")


@contextmanager
def connected(
    kind: str,
    servers: str,
    properties: Mapping[str, str],
    *,
    defaults: Mapping[str, Any] = NOTHING,
    flags: Mapping[str, Any] = NOTHING,
    notices: bool = True,
) -> Iterator[Any]:
    """A `KafkaAdminClient`, `KafkaProducer` or `KafkaConsumer`, closed at the end.

    `flags` (settings by flags) override the properties, and these override `defaults` (of the command). Errors of the library become
    `CommandFailed`. `notices`: print that a connection is lost, or that records are refused, while the library retries.
    """
    check_reachable(servers)
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    import kafka
    import kafka.errors

    made = getattr(kafka, kind)
    chosen = {"bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS, **defaults, **settings(properties, made.DEFAULT_CONFIG), **flags}
    own = own_settings(properties)
    check(servers, own)
    try:
        try:
            client = made(bootstrap_servers=servers.split(","), **chosen)
        except kafka.errors.KafkaTimeoutError:
            within = f"within {chosen['bootstrap_timeout_ms'] / 1000:.0f} s"
            problem = f"{servers} accepts connections, but did not answer as a Kafka broker {within}"
            raise CommandFailed(f"{problem}; correct --bootstrap-server, or security.protocol in its properties") from None
        except (kafka.errors.KafkaConfigurationError, ValueError, AssertionError) as error:
            raise BadUsage(f"the client library refuses these settings: {plain(error)}; correct them") from error
        handlers = {"kafka.net.connection": _LostConnections(logging.ERROR), "kafka.producer.sender": _RefusedBatches(logging.WARNING)}
        for name, handler in handlers.items() if notices else ():
            logging.getLogger(name).addHandler(handler)
        try:
            yield client
        except BaseException:
            if kind == "KafkaProducer":  # `close` would wait, maybe forever, for records that cannot be sent
                with suppress(kafka.errors.KafkaTimeoutError):
                    client.flush(LAST_FLUSH_S)
                client._sender.force_close()
            raise
        finally:
            client.close()
            for name, handler in handlers.items():
                logging.getLogger(name).removeHandler(handler)
    except CommandFailed as problem:
        reason = _explained(problem, servers, own)
        if reason is problem:
            raise
        raise reason from problem
    except kafka.errors.KafkaError as error:
        raise _explained(failure("the request failed", error), servers, own) from error
    except RuntimeError as error:  # that no controller was found, for example
        if not _raised_by_library(error):
            raise
        raise _explained(failure("the request failed", error), servers, own) from error


def _explained(problem: CommandFailed, servers: str, own: ClientSettings | None) -> CommandFailed:
    """The same failure with its reason, if that is a full disk or a broker that cannot be reached."""
    if own is None:
        return problem
    found = explained(problem, addresses(servers), own)
    wrong = unreachable(servers, own) if found is problem and problem.code in _MAY_BE_UNREACHABLE else []
    return CommandFailed(f"{problem}; {'; '.join(wrong)}", problem.code) if wrong else found


def _raised_by_library(error: BaseException) -> bool:
    """Whether kafka-python raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "kafka"


@contextmanager
def administering(arguments: argparse.Namespace) -> Iterator[Any]:
    """A `KafkaAdminClient` by the flags of `arguments.add_client`."""
    properties = read_properties(arguments.command_config)
    with connected("KafkaAdminClient", arguments.bootstrap_server, properties) as admin:
        yield admin


def send(admin: Any, request: Any, node_id: int | None = None) -> Any:
    """The response to a request in kafka-python's messages, from one broker, or from any.

    It is for requests for which `KafkaAdminClient` has no method, or one that hides the errors of single partitions.
    """
    return admin._manager.run(admin._manager.send, request, node_id)


def send_to_controller(admin: Any, request: Any, parts: Callable[[Any], Iterable[Any]] = lambda response: (response,)) -> Any:
    """The response of the controller to a request in kafka-python's messages. `parts`: what has the error codes of a response."""
    from kafka.errors import for_code

    return admin._manager.run(
        admin._send_request_to_controller, request, lambda response: [for_code(part.error_code) for part in parts(response)], False
    )


def without_controller(what: str, call: Callable[[], T], otherwise: T) -> T:
    """The result of a call; `otherwise`, and a warning that `what` is not shown, while the cluster has no controller or no ZooKeeper."""
    from kafka.errors import KafkaError

    try:
        return call()
    except (KafkaError, RuntimeError) as error:
        if failure("", error).code is not ErrorCode.NOT_CONTROLLER:
            raise
        warn(f"{what} cannot be shown: the cluster has no controller or no ZooKeeper at the moment")
        return otherwise


def retried(call: Callable[[], T], timeout_ms: int) -> T:
    """Repeat a call for some time while it fails with a retriable error, as before there is a coordinator or a leader. KafkaError."""
    from kafka.errors import KafkaError

    deadline_s = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            return call()
        except KafkaError as error:
            if not error.retriable or time.monotonic() > deadline_s:
                raise
        time.sleep(RETRY_S)


class _LostConnections(logging.Handler):
    """Reports a lost connection, at most once in NOTICE_EVERY_S: the library retries."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._notice = Notice()

    def emit(self, record: logging.LogRecord) -> None:
        self._notice.show(lambda: "the connection to the broker is lost; trying again until it is back")


class _RefusedBatches(logging.Handler):
    """Reports, at most once in NOTICE_EVERY_S, that a broker refuses records with an error on which the library retries."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._notice = Notice()

    def emit(self, record: logging.LogRecord) -> None:
        if "Got error produce response" in record.msg:
            self._notice.show(lambda: _refused(record))


def _refused(record: logging.LogRecord) -> str:
    import kafka.errors

    # The last arguments are the name of the error's class and the broker's message.
    arguments = record.args if isinstance(record.args, tuple) else ()
    *_, name, message = ("", "", *map(str, arguments))
    code = getattr(getattr(kafka.errors, name, None), "errno", -1)
    refused = broker_error("the broker refuses records", code, message.removeprefix(". Error Message: ") or None)
    return f"{refused}; trying again"


class Notice:
    """A sentence on standard error, at most once in NOTICE_EVERY_S."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def show(self, sentence: Callable[[], str | None]) -> None:
        """Show the sentence if it is time, and if there is one."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            text = sentence()
            if text is not None:
                self._next_s = now_s + NOTICE_EVERY_S
                warn(text)


def failure(what: str, error: Exception) -> CommandFailed:
    """The failure of `what` with an error of kafka-python."""
    code = getattr(error, "errno", None)
    if isinstance(code, int):
        return broker_error(what, code, plain(error))
    if isinstance(error, RuntimeError):
        advice = "try again in a moment; if that does not help, see the logs of the brokers and of ZooKeeper"
        return CommandFailed(f"{what}: no broker is the controller at the moment; {advice}", ErrorCode.NOT_CONTROLLER)
    return CommandFailed(f"{what}: {plain(error)}; check that the broker runs, and try again", ErrorCode.REQUEST_TIMED_OUT)


def plain(error: Exception) -> str:
    """The text of an error of kafka-python without its class and number."""
    text = error.args[0] if error.args else ""
    return str(text) if text else type(error).__name__
