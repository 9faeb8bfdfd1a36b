"""Which brokers have users in a file (txbroker.scram.users.file), which the metadata does not show: for `txbroker users`."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from txbroker.cli.broker_settings import broker_ids, settings
from txbroker.console.failures import CommandFailed

KEY = "txbroker.scram.users.file"


class UsersFiles(NamedTuple):
    """`where`: a clause that says which brokers read which file. `commands`: of `txbroker users`, without the action."""

    where: str
    commands: list[str]

    def advice(self, action: str) -> str:
        """What to run. `action`: flags."""
        return f"{' and '.join(f'`{command} {action}`' for command in self.commands)} on each of their machines"


def users_files(admin: Any) -> UsersFiles | None:
    """The files of all brokers, as far as these describe their configurations; None if there are none."""
    from kafka.errors import KafkaError

    found: dict[str, list[int]] = {}
    hidden: dict[str, list[int]] = {}
    for broker_id in broker_ids(admin):
        try:
            path = settings(admin, broker_id, (KEY,)).get(KEY)
        except CommandFailed as failed:
            hidden.setdefault(str(failed) if failed.code is None else failed.code.name, []).append(broker_id)
            continue
        except KafkaError as failed:  # the broker does not answer
            hidden.setdefault(type(failed).__name__, []).append(broker_id)
            continue
        if path:
            found.setdefault(path, []).append(broker_id)
    clauses = [f"{_brokers(ids)} also {'reads' if len(ids) == 1 else 'read'} users from {path}" for path, ids in found.items()]
    clauses += [
        f"{_brokers(ids)} may also read users from a file, {KEY}, which this client cannot see ({why})" for why, ids in hidden.items()
    ]
    commands = [f"txbroker users --file {shlex.quote(path)}" for path in (*found, *(["FILE"] if hidden else []))]
    return UsersFiles("; ".join(clauses), commands) if clauses else None


def _brokers(ids: list[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"
