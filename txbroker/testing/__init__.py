"""A real broker for tests: `with Kafka() as kafka:`, fixtures for pytest, and a class for unittest.

| module | purpose |
|---|---|
| `kafka` | `Kafka`: a broker of a test, from start to stop, and what a test does with it |
| `broker_process` | the process of one broker: command, start, stop, log |
| `pause_guard` | a program that lets a paused broker go on when the process of the tests has ended |
| `reserved_port` | a port that stays the broker's while it does not run |
| `server` | the main program of that process |
| `process_end` | notices that the process of the tests has ended |
| `settings` | the settings of a broker, checked and completed with defaults for tests |
| `records` | `Record`, and writing and reading records with txbroker's own client |
| `topics` | creating, compacting, expiring and deleting topics, deleting groups |
| `namespaces` | `Namespace`: unique names of topics and groups, which are deleted together |
| `secured` | TLS and logins: certificate, user, and what brokers and clients need of them |
| `client_settings` | the settings with which a client library connects |
| `shared_brokers` | one broker for several processes of one test run |
| `plugin_options` | the options of the pytest plugin |
| `pytest_plugin` | the fixtures and the marker; imports only pytest and `plugin_options` |
| `broker_report` | what the report of a failing test has of its broker |
| `unittest_mixin` | `KafkaMixin` for unittest.TestCase |
| `errors` | `KitError`, `UnmatchedRule` and `EditError` |
| `checked_calls` | checks the arguments of what a test calls, and raises errors where it has called |
| `live_brokers` | the brokers of this process, for the report of a failing test |
| `brokers` | `Broker`: one of the brokers of a `Kafka` |
| `rules` `journal` | rules for faults and the journal of requests, as a test uses them |
| `broker_control` | the clock of the broker, its logs, and what ends by request, as a test uses them |
| `control_client` | requests to the control port of a broker |
| `edit_function` `edited_values` | a function that changes answers, and the check of what it returns |
| `edit_server` | the port at which brokers have functions change answers |
| `edit_frames` | what a broker and that port send each other |

In the process of the broker:

| module | purpose |
|---|---|
| `control_port` `control_server` | the control port: JSON over HTTP |
| `control_routes` `control_forms` | what the control port serves, and the forms of its requests and answers |
| `openapi` | the description of the control port in OpenAPI |
| `operations` `broker_routes` | what the control port does with the broker itself |
| `moved_clock` `due_work` | the wall clock with an offset, and what is done when it moves |
| `expiry` | members and transactions that end by request |
| `snapshots` | copies of the data of a broker, and the way back |
| `log_operations` | logs that are rolled, filled and truncated, and topics that are recreated |
| `faults` | the rules and the journal of one broker |
| `rule_specs` | the form of a rule, and its checks |
| `rule_set` | which rule acts on a request |
| `journal_log` | the last requests |
| `tally` | the counts of rules and the numbers of the journal, of one broker or of a cluster |
| `served_broker` `member_control` | the control port of one broker: what its cluster asks for |
| `isr_bars` | replicas that are kept out of ISRs |
| `answer_frames` | frames that rules change, decoded and encoded again |
| `changed_answers` | what rules change in the answers of the broker |
| `traffic` | what a request is about, and the errors of a response |
| `kafka_releases` | the requests of Kafka's releases, for `as_version` |
| `edited_fields` | changes of single fields in an answer |
| `edit_calls` | answers that wait for a function in the process of a test |
| `error_scopes` | errors of partitions, of topics and of requests |
| `fault_ports` `fault_protocol` | the place between sockets and broker where rules act |

In the process that serves the metadata and the control port of a cluster:

| module | purpose |
|---|---|
| `cluster_server` | its main program |
| `cluster_settings` | the settings of its brokers |
| `cluster_brokers` | their processes |
| `cluster_view` | what the brokers know of each other, and waiting for it |
| `cluster_moves` | leaders and coordinators move, ISRs shrink |
| `cluster_routes` `cluster_control` | its control port: the operations, and what they do |

The names below are imported when they are first used, because every run of pytest in an environment with txbroker imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txbroker.client.client_errors import ClientError
    from txbroker.testing.brokers import Broker
    from txbroker.testing.errors import EditError, KitError, UnmatchedRule
    from txbroker.testing.journal import Entry, Journal
    from txbroker.testing.kafka import Kafka
    from txbroker.testing.namespaces import Namespace
    from txbroker.testing.records import Record
    from txbroker.testing.rules import Rule
    from txbroker.testing.unittest_mixin import KafkaMixin

__all__ = [
    "Broker", "ClientError", "EditError", "Entry", "Journal", "Kafka", "KafkaMixin", "KitError", "Namespace", "Record", "Rule",
    "UnmatchedRule",
]  # fmt: skip

_MODULES = {
    "Broker": "testing.brokers", "ClientError": "client.client_errors", "EditError": "testing.errors", "Entry": "testing.journal",
    "Journal": "testing.journal", "Kafka": "testing.kafka", "KafkaMixin": "testing.unittest_mixin", "KitError": "testing.errors",
    "Namespace": "testing.namespaces", "Record": "testing.records", "Rule": "testing.rules", "UnmatchedRule": "testing.errors",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"txbroker.{_MODULES[name]}"), name)
