"""`txbroker reassign-partitions`. The expected output is that of Kafka 4.3.1's tool for moves within one broker."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartitionReplica
from kafka.errors import NoError

from tests.cli.commands import fill, run
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import fetch
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.cli import clients
from txbroker.cli.main import main
from txbroker.cli.ongoing_reassignments import Ongoing
from txbroker.cli.reassign import reassign_command, throttles
from txbroker.cli.reassign.directory_moves import Log, Replica, move_state
from txbroker.cli.reassign.reassignment_file import Assignment, as_json, read_assignments, read_topics
from txbroker.console.failures import CommandFailed
from txbroker.names import TopicPartition

Start = Callable[..., Server]


def written(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def entry(**fields: Any) -> dict[str, Any]:
    return {"topic": "a", "partition": 0, "replicas": [1, 2], **fields}


def test_assignments_are_read_and_written(tmp_path: Path) -> None:
    path = written(tmp_path / "f", {"version": 1, "partitions": [entry(log_dirs=["/d", "any"]), entry(topic="b", partition=3)]})
    found = read_assignments(path)
    assert found == {TopicPartition("a", 0): Assignment([1, 2], ["/d", "any"]), TopicPartition("b", 3): Assignment([1, 2], ["any", "any"])}
    assert as_json(found) == (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["/d","any"]},'
        '{"topic":"b","partition":3,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    )
    assert read_assignments(written(tmp_path / "g", as_json(found))) == found


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", "Partition reassignment list cannot be empty"),
        ({"version": 2, "partitions": [entry()]}, "Partition reassignment list cannot be empty"),
        ({"partitions": [entry(), entry()]}, "Partition reassignment contains duplicate topic partitions: a-0"),
        ({"partitions": [entry(replicas=[])]}, "Partition replica list cannot be empty: a-0"),
        ({"partitions": [entry(replicas=[1, 1])]}, "Partition replica lists may not contain duplicate entries: a-0"),
        ({"partitions": [entry(log_dirs=["/d"])]}, "log_dirs of a-0 must have as many entries as its list of replicas"),
        ({"partitions": [entry(partition="0")]}, "has an invalid entry {'topic': 'a', 'partition': '0'"),
        ({"partitions": [entry(replicas=[True])]}, "has an invalid entry"),
        ({"partitions": [entry(log_dirs=[1, 2])]}, "has an invalid entry"),
        ({"partitions": [7]}, "has an invalid entry 7"),
        ("[1]", "Partition reassignment list cannot be empty"),
        ("{", "is not valid JSON"),
    ],
)
def test_files_that_are_invalid(content: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed) as caught:
        read_assignments(written(tmp_path / "f", content))
    assert problem in str(caught.value)


def test_topics_to_move(tmp_path: Path) -> None:
    assert read_topics(written(tmp_path / "f", {"topics": [{"topic": "b"}, {"topic": "a"}]})) == ["b", "a"]
    for content in ("{}", {"topics": []}, {"topics": ["a"]}, {"topics": [{"topic": "a"}, 7]}):
        with pytest.raises(CommandFailed, match="has no list of topics; the format is"):
            read_topics(written(tmp_path / "f", content))
    with pytest.raises(CommandFailed, match="List of topics to reassign contains duplicate entries: a"):
        read_topics(written(tmp_path / "f", {"topics": [{"topic": "a"}, {"topic": "a"}]}))


@pytest.mark.parametrize(
    ("log", "state", "sentence"),
    [
        (Log("/b"), "completed", "Reassignment of replica a-0-1 completed successfully."),
        (Log("/a", "/b", 7), "in_progress", "Reassignment of replica a-0-1 is still in progress."),
        (Log("/a", "/c"), "other_target", "Partition a-0 on broker 1 is being moved to log dir /c instead of /b."),
        (Log("/a"), "not_started", "Partition a-0 on broker 1 is not being moved from log dir /a to /b."),
        (Log(), "missing", "Partition a-0 on broker 1 is not found in any live log dir; there is likely an offline log directory on the "
         "broker."),
    ],
)  # fmt: skip
def test_the_state_of_a_move(log: Log, state: str, sentence: str) -> None:
    assert move_state(Replica(TopicPartition("a", 0), 1), log, "/b") == (state, sentence)


def test_moves_between_the_directories_of_a_broker(start_broker: Start, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    server = start_broker({"log.dirs": f"{one},{two}", "broker.id": "7"})
    create_topic(server, "t", 3)
    fill(server, "t", {0: 100, 1: 50})
    tool = ("reassign-partitions", "--bootstrap-server", server.address)
    topics = written(tmp_path / "topics", {"topics": [{"topic": "t"}], "version": 1})

    def generated() -> tuple[dict[str, Any], dict[str, Any]]:
        title, current, empty, second_title, proposed, *rest = run(
            *tool, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "7"
        )[0].split("\n")
        assert (title, empty) == ("Current partition replica assignment", "")
        assert second_title == "Proposed partition reassignment configuration"
        assert set(rest) == {""}
        return json.loads(current), json.loads(proposed)

    before, proposed = generated()
    places = {row["partition"]: row["log_dirs"] for row in before["partitions"]}
    assert {path for paths in places.values() for path in paths} == {str(one), str(two)}
    assert {row["partition"]: row["log_dirs"] for row in proposed["partitions"]} == {number: ["any"] for number in range(3)}

    swapped = {**before, "partitions": [{**row, "log_dirs": [str(two if row["log_dirs"] == [str(one)] else one)]}
                                        for row in before["partitions"]]}  # fmt: skip
    move = ("--reassignment-json-file", written(tmp_path / "move", swapped))
    output, complaint = run(*tool, "--execute", *move)
    lines = output.splitlines()
    assert lines[:2] == ["Current partition replica assignment", ""]
    assert json.loads(lines[2]) == before
    assert lines[3:5] == ["", "Save this to use as the --reassignment-json-file option during rollback"]
    assert lines[5:] == [
        "Successfully started partition reassignments for t-0,t-1,t-2",
        *(f"Successfully started moving log directory to {row['log_dirs'][0]} for replica t-{row['partition']} with broker 7"
          for row in swapped["partitions"]),
    ]  # fmt: skip
    assert complaint == ""

    def states() -> set[str]:
        return {json.loads(line)["state"] for line in run(*tool, "--verify", *move, "--json")[0].splitlines()}

    until(lambda: states() == {"completed"}, "all are moved")
    assert run(*tool, "--verify", *move)[0].splitlines() == [
        "Status of partition reassignment:",
        *(f"Reassignment of partition t-{number} is completed." for number in range(3)),
        *(f"Reassignment of replica t-{number}-7 completed successfully." for number in range(3)),
        "Clearing broker-level throttles on broker 7",
        "Clearing topic-level throttles on topic t",
    ]
    assert generated()[0] == swapped
    assert (Path(swapped["partitions"][0]["log_dirs"][0]) / "t-0").is_dir()
    with RawConnection(server.address) as connection:
        assert len(fetch(connection, "t", 0, bytes_max=1 << 20).records) == 100
    assert run(*tool, "--list")[0] == "No partition reassignments found.\n"
    assert run(*tool, "--cancel", *move, "--preserve-throttles")[0].splitlines() == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
    ]
    run(*tool, "--execute", "--reassignment-json-file", written(tmp_path / "back", before))
    until(lambda: generated()[0] == before, "all are back")


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        (entry(replicas=[1, 2]), "Unknown broker id 1 for t-0; brokers are 7"),
        (entry(partition=9, replicas=[7]), "Unable to find partition: t-9; see `txbroker topics --describe`"),
        (entry(replicas=[7], log_dirs=["/nowhere"]),
         "replica t-0-7 was not moved to /nowhere: log dir not found (LOG_DIR_NOT_FOUND); see `txbroker log-dirs --describe`"),
    ],
)  # fmt: skip
def test_moves_that_are_refused(start_broker: Start, tmp_path: Path, assignment: dict[str, Any], problem: str) -> None:
    server = start_broker({"broker.id": "7"})
    create_topic(server, "t", 1)
    tool = ("reassign-partitions", "--bootstrap-server", server.address)
    file = written(tmp_path / "f", {"partitions": [{**assignment, "topic": "t"}]})
    _, complaint = run(*tool, "--execute", "--reassignment-json-file", file, status=1)
    assert problem in complaint


class Admin:
    """An admin client of a broker with moving replicas; records the requested moves."""

    def __init__(self) -> None:
        self.moved: list[dict[Any, str]] = []

    def describe_topics(self, names: Any = None) -> list[dict[str, Any]]:
        partitions = [{"partition_index": number, "replica_nodes": [1, 2]} for number in range(2)]
        return [{"name": "t", "partitions": partitions}]

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"broker_id": 2}, {"broker_id": 1}]}

    def describe_log_dirs(self, partitions: Any) -> list[dict[str, Any]]:
        def place(path: str, *found: tuple[int, bool]) -> dict[str, Any]:
            rows = [{"partition_index": number, "is_future_key": future, "offset_lag": 5 * future} for number, future in found]
            return {"log_dir": path, "topics": [{"name": "t", "partitions": rows}]}

        return [{"broker": 1, "log_dirs": [place("/a", (0, False), (1, False)), place("/b", (0, True))]},
                {"broker": 2, "log_dirs": [place("/a", (0, False), (1, False))]}]  # fmt: skip

    def alter_replica_log_dirs(self, moves: dict[Any, str]) -> dict[Any, Any]:
        self.moved.append(moves)
        return {TopicPartitionReplica(*replica): NoError for replica in moves}


def test_moves_in_progress_are_listed_verified_and_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = Admin()
    monkeypatch.setattr(clients, "administering", lambda arguments: contextlib.nullcontext(admin))
    monkeypatch.setattr(reassign_command, "find_ongoing", lambda admin: {})
    tool = ("reassign-partitions", "--bootstrap-server", "x:1")
    assert main([*tool, "--list"]) == 0
    assert capsys.readouterr().out == "Current partition reassignments:\nt-0-1: moving from /a to /b, 5 records behind.\n"
    rows = [{"topic": "t", "partition": number, "replicas": [1, 2], "log_dirs": ["/b", "any"]} for number in range(2)]
    move = ("--reassignment-json-file", written(tmp_path / "f", {"partitions": rows}))
    assert main([*tool, "--verify", *move]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "Reassignment of replica t-0-1 is still in progress.",
        "Partition t-1 on broker 1 is not being moved from log dir /a to /b.",
    ]
    assert main([*tool, "--cancel", *move, "--preserve-throttles"]) == 0
    assert admin.moved == [{("t", 0, 1): "/a"}]
    assert capsys.readouterr().out.splitlines() == [
        "None of the specified partition reassignments are active.",
        "Successfully started moving log directory to /a for replica t-0 with broker 1",
    ]


def test_a_throttle_keeps_the_reassignments_in_progress() -> None:
    begun, wanted = TopicPartition("a", 0), TopicPartition("a", 1)
    moves = throttles.Moves({wanted: [1, 4]}, {wanted: [1, 2]}, {begun: Ongoing([3, 1, 2], [3], [2])})
    assert moves.sources == {begun: {1, 2}, wanted: {1, 2}}
    assert moves.destinations == {begun: {3}, wanted: {4}}
    assert moves.brokers == [1, 2, 3, 4]
