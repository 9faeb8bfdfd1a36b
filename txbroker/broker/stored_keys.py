"""Keys of listeners in the metadata, where an operator may not expect them: those of SASL are refused at the start."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable

from txbroker.broker.identity import uses_zookeeper
from txbroker.cluster import node_paths
from txbroker.config.keys import Update
from txbroker.config.listener_keys import known_key, listener_base, listener_prefix
from txbroker.config.listeners import Listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import has_sasl
from txbroker.errors import StartError
from txbroker.tls.settings import TlsProblem

_KEY = re.compile(r"ssl\.[a-z.]*[a-z]")


def stored_keys(config: BrokerConfig, prefix: str, problem: TlsProblem, broker_id: int) -> str:
    """The end of an error about a listener: which keys of it that the problem concerns are in the metadata, and what to do.

    Empty if there are none: the fault is in the file of the broker then.
    """
    names = [name for name in config.stored if name.startswith((prefix, "ssl.")) and _concerns(problem, listener_base(name) or name)]
    return f"; {_named(names, broker_id)}: restore what they name{_or_delete(config, names, broker_id)}" if names else ""


def _concerns(problem: TlsProblem, key: str) -> bool:
    """Whether it is the key, or is named with it, or belongs to the same store."""
    if key in (problem.key, *_KEY.findall(problem.problem)):
        return True
    store = _store(key)
    return store is not None and (store == _store(problem.key) or store in problem.problem)


def _store(key: str) -> str | None:
    if key.startswith("ssl.keystore.") or key == "ssl.key.password":
        return "key store"
    return "trust store" if key.startswith("ssl.truststore.") else None


def refuse_stored_sasl(config: BrokerConfig, listeners: Listeners, broker_id: int) -> None:
    """StartError if the metadata has other logins for a listener than the broker's own sources, as Kafka can store them.

    They are read from those sources only: what can be altered at run time must not open files or URLs (CVE-2025-27817). A broker that
    ignored them could let in clients that Kafka does not.
    """
    prefixes = tuple(listener_prefix(listener.name) for listener in listeners.bound if has_sasl(listener.protocol))
    if not prefixes:
        return
    own = config.candidate(broker={}, default={})
    names = [name for name in config.stored if name.startswith(("sasl.", *prefixes)) and _is_other(config, own, name)]
    if names:
        raise StartError(
            f"{_named(names, broker_id)}, but keys of logins are read only from the file of the broker (and --override): set them there to "
            f"the same values{_or_delete(config, names, broker_id)}"
        )


def _is_other(config: BrokerConfig, own: BrokerConfig, name: str) -> bool:
    key = known_key(name)
    if key is None or not (listener_base(name) or name).startswith("sasl.") or not key.effective or key.update is Update.READ_ONLY:
        return False
    return name in config.unreadable or config.value(name) != own.value(name)


def _named(names: Iterable[str], broker_id: int) -> str:
    return f"{node_paths.broker_entity(broker_id).path} of the metadata sets {', '.join(sorted(names))}"


def _or_delete(config: BrokerConfig, names: Iterable[str], broker_id: int) -> str:
    if uses_zookeeper(config):
        return ", or delete them there with `kafka-configs --zookeeper` of Apache Kafka 3.9"
    directories = config.list("log.dirs")
    if config.optional_text("txbroker.metadata.socket"):
        directories = tuple(posixpath.dirname(path) for path in directories)  # of a process, below those of the command
    return (
        f", or delete them there, while no broker runs: `txbroker configs --log-dirs {shlex.quote(','.join(directories))} --alter --broker "
        f"{broker_id} --delete-config {','.join(sorted(names))}`"
    )
