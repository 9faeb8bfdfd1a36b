"""The two tiers: `make test` leaves out the tests that have the marker `extended`, which this module and the tests themselves set.

In the short tier are: the tests that start no process; those that use only the broker that all tests share; and of those that start
processes of their own, the ones in SHORT. Names are paths below `tests/`, each alone or with the name of a test, `folder/file.py::test_x`,
with or without its parameters.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

# A test that uses one of these starts processes of its own.
OWN = frozenset({"start_broker", "start_cluster", "spark_jars", "zookeeper_process", "both"})
SHARED = "broker"
DIRECTORY = "all_server_directories"  # what everything that starts servers uses

# What would not be in the short tier, and what it stands for.
SHORT = {
    # Clients: Python and C (clients/) are in the short tier because they use the shared broker.
    "compat/test_java.py::test_a_java_client[java_4_3_1]": "Java's client",
    "compat/test_other_languages.py": "a client in Go and one in JavaScript",
    "clients/test_tls.py::test_librdkafka[both]": "mutual TLS with librdkafka",
    # One cluster of three on ZooKeeper, and Kafka's tools on it.
    "kafka_tools/test_cluster_administration.py": "Kafka's tools, on a cluster",
    "cluster_faults/test_connection_loss.py::test_a_killed_leader_is_replaced_while_its_session_goes_on[True]": "a broker is killed",
    "cluster/test_tree.py": "the tree on a real ZooKeeper",
    "cluster/test_zookeeper_tree.py::test_a_session_that_expires": "a session ends",
    "cluster/test_zookeeper_tree.py::test_watches_survive_a_lost_connection": "a connection ends",
    "cluster/test_zookeeper_brokers.py::test_a_broker_serves_alone_and_a_second_one_registers": "a start with ZooKeeper",
    "cluster/test_zookeeper_brokers.py::test_a_session_that_expires_is_followed_by_another": "the broker's own session",
    "cluster/test_zookeeper_brokers.py::test_what_the_guard_does_at_the_end_of_its_input": "the process that ends sessions",
    # Spark.
    "spark/test_load.py::test_everything_of_a_record_is_in_the_table[delta]": "a load",
    # Crashes and hostile input.
    "crash/test_refusals.py::test_a_refusal_loses_nothing[damaged_metadata]": "a start that is refused",
    "crash/test_refusals.py::test_a_missing_directory_loses_nothing": "a start without one of the log directories",
    "crash/test_crash.py::test_nothing_acknowledged_is_lost[kill-and-damage]": "kill -9 under load",
    "damage/test_live.py::test_damage_while_it_runs[removed]": "a file that is lost under a running broker",
    "damage/test_live.py::test_the_log_names_the_damage_that_a_fetch_finds[flipped]": "a corrupted batch under a running broker",
    "fuzz/test_frames.py": "mutated frames",
    "fuzz/test_hostile_clients.py": "connections with bad intent",
    "transactions/test_partitions.py::test_open_transactions_survive_a_restart[killed]": "kill -9 in a transaction",
    # The broker as a process, and its other processes.
    "cleaner/test_broker.py::test_consumers_get_the_latest_values": "the cleaner's process",
    "cleaner/test_broker.py::test_a_killed_worker_is_replaced": "the cleaner's process ends",
    "cli/test_service.py::test_a_signal_stops_it_cleanly[15-run]": "the command `run`",
    "cli/test_service.py::test_a_signal_stops_it_cleanly[2-twistd]": "the plugin of twistd",
    "cli/test_service.py::test_a_port_in_use[run]": "a start that is refused",
    "cli/test_service.py::test_python_m_txbroker": "the module as a program",
    "cli/test_cluster.py::test_a_cluster_survives_a_killed_broker": "the command `cluster`",
    "cli/test_reassign_partitions.py::test_moves_between_the_directories_of_a_broker": "a move between directories",
    "cli/test_doctor.py": "what doctor finds",
    "metrics/test_endpoint.py": "the metrics port",
    "metrics/test_groups.py::test_offsets_and_lag": "metrics of groups",
    "metrics/test_names.py::test_every_family_is_contiguous_with_one_header": "the format of the metrics",
    "platform/test_removed_names.py::test_it_serves_clients[windows]": "a broker without the functions of Linux and POSIX",
    "service/test_processes.py::test_one_metrics_port_for_all": "several processes of a broker",
    "service/test_notify.py::test_ready_and_stopping_are_notified[path-run]": "systemd",
    "service/test_notify.py::test_the_status_has_the_number_of_loaded_logs[path]": "systemd, during a start",
    "service/test_logs.py::test_text_has_kafkas_layout": "the log",
    "service/test_logs.py::test_with_json_every_line_is_json[run]": "the log in JSON",
    # The mirror.
    "mirror/test_copying.py::test_batches_pass_through[none]": "a copy between two brokers",
    "mirror/test_copying.py::test_a_copy_is_continued": "a copy that ends and goes on",
    "mirror/test_command.py::test_until_caught_up": "the command `mirror`",
    # The test kit.
    "testing/test_kafka.py::test_records_are_read_as_they_were_written": "a broker for tests",
    "testing/test_clock.py::test_what_fell_due_has_happened_when_the_clock_has_moved": "the clock of a broker for tests",
    "testing/test_rules.py::test_an_error_in_place_of_the_work": "a rule for faults",
    "testing/test_server_command.py::test_a_test_process_that_keeps_a_pipe_to_it": "the command `test-server`",
    "testing/test_plugin.py::test_a_test_with_two_clients_in_a_group": "the plugin of pytest",
    "testing/test_plugin.py::test_the_plugin_imports_nothing_and_starts_nothing_by_itself": "what every run of pytest imports",
    # Random histories of whole systems.
    "cleaner/test_generational.py::test_the_bound_holds_for_all_kinds_of_writes[same-0.2]": "one shape of writes",
    "cleaner/test_generational.py::test_the_bound_holds_for_all_kinds_of_writes[moving-0.5]": "another one",
    "groups/test_replicated_coordinator.py::test_random_histories[0]": "groups whose coordinators fail",
    "simulation/test_simulation.py": "one hundred seeds",
}

# What would be in the short tier, and why it is not.
EXTENDED = {
    "bench/test_cluster.py": "draws pages of graphs",
    "bench/test_real.py::test_a_load[java-produce-100]": "starts a JVM",
    "cleaner/test_generational.py::test_the_bound_holds_for_all_kinds_of_writes": "long histories",
    "cli/test_commands.py::test_internal_topics_are_folded_on_a_terminal": "starts several commands",
    "cli/test_commands.py::test_on_a_terminal": "starts two dozen commands",
    "cli/test_commands.py::test_progress_while_records_go_to_a_file": "starts several commands",
    "cli/test_perf.py::test_kafkas_own_tools_agree": "starts JVMs",
    "clients/test_topic_operations.py::test_apache_kafkas_tool_with_the_java_client": "starts JVMs",
    "cluster/test_controller_costs.py::test_a_change_of_thousands_of_partitions_takes_few_operations_and_requests": "many partitions",
    "compat/test_java.py": "starts JVMs",
    "docs/test_programs.py": "builds and runs the programs of the documentation",
    "docs/test_reference.py": "builds the documentation",
    "fakes/test_disks.py::TestSideBySide": "syncs a real disk for a minute",
    "groups/test_replicated_coordinator.py::test_random_histories": "long histories",
    "hostile/test_valid_requests.py::test_large_batches_that_are_refused": "megabytes of records",
    "kafka_tools": "starts JVMs",
    "log/test_open_segments.py::test_few_segments_are_open_however_many_are_read": "thousands of segments",
    "offline/test_plot.py": "draws pages of graphs",
    "peers/test_hostile_requests.py::test_the_state_of_a_hundred_thousand_partitions_fits_into_a_request_and_not_much_more":
        "a hundred thousand partitions",
    "security/test_bypass.py::test_a_deliberate_bug_is_found": "tests the property test, by many seeds",
    "service/test_wall_clock_steps.py::test_waits_are_neither_cut_short_nor_stretched": "starts brokers whose clocks jump",
    "simulation/test_access.py::test_a_deliberate_bug_is_found": "tests the simulation, by a seed for each deliberate bug",
    "simulation/test_ledgers.py::test_each_kind_of_work_is_done": "tests the simulation, by many seeds",
    "simulation/test_simulation.py::test_a_deliberate_bug_is_found_soon": "tests the simulation, by many seeds",
    "simulation/test_stored_plans.py": "tests the simulation, by a seed for each deliberate bug",
    "spark/test_standalone.py": "starts clusters of Spark",
    "testing/test_plugin.py": "runs pytest in processes of its own",
    "testing/test_server_command.py": "starts several commands",
    "tls/test_stores.py::test_a_store_of_each_type_serves_a_listener_and_a_client[ec-jks]": "starts JVMs, as for rsa",
    "tls/test_stores.py::test_a_store_of_each_type_serves_a_listener_and_a_client[ec-pkcs12]": "starts JVMs, as for rsa",
    "tls/test_stores.py::test_a_store_of_each_type_serves_a_listener_and_a_client[ec-pkcs12 as jks, as in Java]": "starts JVMs, as for rsa",
    "transactions/test_real_clients.py::test_kafkas_performance_test_with_transactions": "starts JVMs",
    "transactions/test_real_clients.py::test_kafkas_tool_describes_and_lists_transactions": "starts JVMs",
}  # fmt: skip

# What may take longest comes first, so that all workers of pytest-xdist end at about the same time, and one has all tests with Spark.
FIRST = ("spark", "start_cluster", "both", "zookeeper_process", "start_broker", DIRECTORY)


def is_extended(path: str, name: str, fixtures: Container[str], *, process: bool) -> bool:
    """Whether a test is left out of the short tier.

    `path` is that of its file below `tests/`, `name` has its parameters; `process` says that its module marks it as one that starts
    processes. The nearest entry of the lists decides, an entry with a file's or a test's name before one with the folder's.
    """
    for entry in _entries(path, name):
        if entry in SHORT or entry in EXTENDED:
            return entry in EXTENDED
    own = process or DIRECTORY in fixtures
    return any(fixture in fixtures for fixture in OWN) or (own and SHARED not in fixtures)


def position(fixtures: Container[str], *, process: bool) -> int:
    """Where a test comes in the order of all: first what takes long."""
    found = next((number for number, fixture in enumerate(FIRST) if fixture in fixtures), len(FIRST))
    return min(found, len(FIRST) - 1) if process else found


def _entries(path: str, name: str) -> Iterator[str]:
    """What names a test in the lists, the most exact first."""
    for test in (name, name.partition("[")[0], name.partition("::")[0]):
        yield f"{path}::{test}"
    while path:
        yield path
        path = path.rpartition("/")[0]
