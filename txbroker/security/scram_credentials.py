"""The SCRAM credentials of all users, as this broker knows them from the users' configurations (`/config/users`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from txbroker.client_quotas.entities import decoded, entity_of
from txbroker.cluster.node_paths import Entity
from txbroker.security.sasl_exchange import shown_user
from txbroker.wire.scram import HASHES

if TYPE_CHECKING:
    from txbroker.security.scram import ScramCredential

log = logging.getLogger("txbroker.security")

# The mechanisms in requests, with Kafka's codes.
MECHANISM_CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS_MAX = 16_384  # Kafka's, of both mechanisms, for users in the metadata


class ScramCredentials:
    """By mechanism and user. Those of the metadata count before those of a file (`users_file.py`)."""

    def __init__(self) -> None:
        self._users: dict[str, dict[str, ScramCredential]] = {mechanism: {} for mechanism in HASHES}
        self._of_file: Mapping[str, Mapping[str, ScramCredential]] = self._users

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """The credential of a user; None if there is none, or none that can be used."""
        return self._users[mechanism].get(user) or self._of_file[mechanism].get(user)

    def replace_file(self, users: Mapping[str, Mapping[str, ScramCredential]]) -> None:
        """The users of the file, by mechanism."""
        self._of_file = users

    def configure(self, node: Entity, properties: Mapping[str, str]) -> None:
        """The configuration of a user has changed. A credential that cannot be used is logged, and the user cannot log in with it."""
        user = user_of(node)
        if user is None:
            return
        for mechanism, users in self._users.items():
            text = properties.get(mechanism)
            was_known = users.pop(user, None) is not None
            if text is None:
                if was_known and user in self._of_file[mechanism]:
                    log.warning("user %s has no password for %s in the metadata any more, and still logs in with the one in the file of "
                                "txbroker.scram.users.file: `txbroker users --file` removes it",
                                shown_user(user), mechanism)  # fmt: skip
            else:
                from txbroker.security.scram import InvalidCredential, ScramCredential  # most clusters have no users

                try:
                    users[user] = ScramCredential.parse(text)
                except InvalidCredential as error:
                    log.error("user %s cannot log in with %s: the credential is invalid, %s: set the password again",
                              shown_user(user), mechanism, error)  # fmt: skip


def user_of(node: Entity) -> str | None:
    """The user whose configuration is in a node; None for the default of all users, and for other nodes."""
    entity = entity_of(node)
    if entity is None or entity.user is None or entity.client_id is not None:
        return None
    return decoded(entity.user)
