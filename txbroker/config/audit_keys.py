"""Keys of the audit log, which Kafka does not have."""

from __future__ import annotations

from txbroker.config.checks import at_least, each_of, principals, topic_name
from txbroker.config.keys import Importance, Key, Type

AUDIT_EVENTS = ("denial", "login", "login_failure", "change", "use")

KEYS = (
    Key("txbroker.audit.file", Type.STRING, None, Importance.MEDIUM,
        "File of the audit log, one JSON object a line; without it and txbroker.audit.topic there is none. With --processes each process "
        "has its own file."),
    Key("txbroker.audit.topic", Type.STRING, None, Importance.MEDIUM,
        "Topic of the audit log, with or without a file: one JSON object a record, with the principal as the key. The broker creates it if "
        "auto.create.topics.enable is true.", topic_name),
    Key("txbroker.audit.file.max.bytes", Type.LONG, 104_857_600, Importance.LOW,
        "Size at which the file is renamed to FILE.1, and another one begun, in bytes.", at_least(1024)),
    Key("txbroker.audit.file.count", Type.INT, 10, Importance.LOW,
        "How many renamed files are kept; the oldest is deleted.", at_least(0)),
    Key("txbroker.audit.events", Type.LIST, AUDIT_EVENTS[:-1], Importance.MEDIUM,
        "What is recorded: denial, login, login_failure, change (by administrators), and use (what an authorizer allows, once a period for "
        "each principal, address, operation and resource).", each_of(*AUDIT_EVENTS)),
    Key("txbroker.audit.use.period.ms", Type.LONG, 3_600_000, Importance.LOW,
        "How often the use of the same right is recorded, in milliseconds.", at_least(1000)),
    Key("txbroker.audit.excluded.principals", Type.STRING, None, Importance.LOW,
        "Principals, separated by semicolons, whose logins and uses are not recorded, such as those of brokers and of monitoring.",
        principals),
)
