"""The commands on a real broker: standard input and output, exit statuses, terminals, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import ENVIRONMENT, command, on_terminal, run
from tests.support.raw_admin import find_coordinator
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S
from txbroker.cli import produce

pytestmark = pytest.mark.process


def test_topics(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address)

    def topics(*argv: str, status: int = 0) -> str:
        output, complaint = run("topics", *server, *argv, status=status)
        assert output == "" if status else complaint == ""
        return complaint if status else output

    created = ("--create", "--topic", name, "--partitions", "3", "--replication-factor", "1", "--config", "segment.bytes=1048576")
    assert topics(*created) == f"Created topic {name}.\n"
    exists = f"topic {name} was not created: Topic '{name}' already exists (TOPIC_ALREADY_EXISTS); specify --if-not-exists to ignore this\n"
    assert topics(*created, status=1) == f"txbroker topics: {exists}"
    assert topics(*created, "--if-not-exists") == ""
    assert name in topics("--list").split()

    assert topics("--alter", "--topic", name, "--partitions", "5") == f"Topic {name} now has 5 partitions.\n"
    assert "INVALID_PARTITIONS" in topics("--alter", "--topic", name, "--partitions", "2", status=1)
    topics("--alter", "--topic", name, "--config", "retention.ms=60000", "--config", "cleanup.policy=compact,delete")
    assert re.search("soon.*retention.ms|retention.ms.*soon", topics("--alter", "--topic", name, "--config", "retention.ms=soon", status=1))
    summary, *partitions = topics("--describe", "--topic", name).splitlines()
    configs = "cleanup.policy=compact,delete,(?:min.insync.replicas=1,)?retention.ms=60000,segment.bytes=1048576"
    assert re.fullmatch(rf"Topic: {name}\tTopicId: [\w-]{{22}}\tPartitionCount: 5\tReplicationFactor: 1\tConfigs: {configs}", summary)
    assert [re.sub(r": 1\d*", ": ID", line) for line in partitions if "Partition: 1" not in line] == [
        f"\tTopic: {name}\tPartition: {i}\tLeader: ID\tReplicas: ID\tIsr: ID" for i in (0, 2, 3, 4)
    ]

    assert topics("--delete", "--topic", name) == f"Deleted topic {name}.\n"
    missing = f"topic {name} does not exist; see `txbroker topics --list`, or create it with `txbroker topics --create`"
    for action in (["--delete"], ["--describe"], ["--alter", "--partitions", "9"]):
        assert topics(*action, "--topic", name, status=1) == f"txbroker topics: {missing}\n"
        assert topics(*action, "--topic", name, "--if-exists") == ""
    assert "INVALID_TOPIC_EXCEPTION" in topics("--create", "--topic", "no topic", status=1)
    assert "Unknown topic config" in topics("--create", "--topic", name, "--config", "foo=1", status=1)


def test_filters_of_topics(broker: Server, name: str) -> None:
    server = ("topics", "--bootstrap-server", broker.address)

    def shown(*flags: str) -> list[str]:
        return run(*server, "--describe", *flags)[0].splitlines()

    run(*server, "--create", "--topic", f"{name}-0")
    leader = shown("--topic", f"{name}-0")[1].split()[5]
    run(*server, "--create", "--topic", name, "--replica-assignment", f"{leader},{leader}")
    run(*server, "--alter", "--topic", name, "--partitions", "3", "--replica-assignment", ",".join([leader] * 3))
    summary, *partitions = shown("--topic", name)
    topic_id = re.findall(r"TopicId: (\S+)", summary)[0]
    assert shown("--topic-id", topic_id) == [summary, *partitions]
    assert len(partitions) == 3
    both = ("--topic", f"{name}.*")
    assert shown(*both, "--under-replicated-partitions") == shown(*both, "--unavailable-partitions") == []
    assert [line for line in shown(*both, "--at-min-isr-partitions") if f"Topic: {name}\t" in line] == partitions
    run(*server, "--alter", "--topic", name, "--config", "min.insync.replicas=2")
    assert shown(*both, "--under-min-isr-partitions") == partitions
    overrides = shown(*both, "--topics-with-overrides")
    assert [line.split("\t")[0] for line in overrides if "min.insync.replicas=2" in line] == [f"Topic: {name}"]
    _, complaint = run(*server, "--describe", "--topic-id", "nope", status=1)
    assert "there is no topic with the id nope; see `txbroker topics --describe`" in complaint
    _, complaint = run(*server, "--create", "--topic", f"{name}-1", "--replica-assignment", "777", status=1)
    assert "(INVALID_REPLICATION_ASSIGNMENT)" in complaint or "(INVALID_REPLICA_ASSIGNMENT)" in complaint


def test_produced_records_are_consumed(broker: Server, name: str, tmp_path: Path) -> None:
    server = ("--bootstrap-server", broker.address, "--topic", name)
    long = "value " * 100  # kafka-python does not compress small batches
    lines = [f"trace:1,trace:2\tk-é\t{long}", "\tk-1\t", "\tk-2\tNULL", "a:b:c\tNULL\ta\tb"]
    properties = ("--property", "parse.key=true", "--property", "parse.headers=true", "--property", "null.marker=NULL")
    config = tmp_path / "producer.properties"
    config.write_text("client.id=the-test\ncompression.type=gzip\n")
    settings = ("--compression-codec", "zstd", "--producer.config", str(config), "--producer-property", "linger.ms=1")
    assert run("produce", *server, *properties, *settings, stdin="\r\n".join(lines)) == ("", "")
    everything = [f"--property=print.{field}=true" for field in ("timestamp", "partition", "offset", "headers", "key")]
    output, complaint = run("consume", *server, "--from-beginning", "--max-messages", "4", *everything)
    assert re.sub(r"CreateTime:1\d{12}\t", "", output) == (
        f"Partition:0\tOffset:0\ttrace:1,trace:2\tk-é\t{long}\n"
        "Partition:0\tOffset:1\tNO_HEADERS\tk-1\t\n"
        "Partition:0\tOffset:2\tNO_HEADERS\tk-2\tnull\n"
        "Partition:0\tOffset:3\ta:b:c\tnull\ta\tb\n"
    )
    assert complaint == "Processed a total of 4 messages\n"
    dumped, _ = run("dump-log", "--files", str(broker.partition_directory(name) / f"{0:020}.log"), "--print-data-log")
    assert "compresscodec: zstd" in dumped, "flags have precedence over the file"
    assert dumped.count("\n| offset: ") == 4


def test_json(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address, "--json")

    def objects(*argv: str, stdin: bytes = b"") -> list[dict[str, Any]]:
        return [json.loads(line) for line in run(argv[0], *server, *argv[1:], stdin=stdin)[0].splitlines()]

    assert objects("topics", "--create", "--topic", name) == [{"topic": name, "action": "created"}]
    assert {"topic": name, "internal": False} in objects("topics", "--list")
    written = objects("produce", "--topic", name, "--property", "parse.key=true", stdin=b"k\tv\n\xff\t\n")
    assert [(row["line"], row["topic"], row["partition"], row["offset"]) for row in written] == [(1, name, 0, 0), (2, name, 0, 1)]
    read = objects("consume", "--topic", name, "--from-beginning", "--max-messages", "2")
    assert [row["timestamp"] for row in read] == [row["timestamp"] for row in written]
    assert [(row["offset"], row["key"], row["value"]) for row in read] == [(0, "k", "v"), (1, {"base64": "/w=="}, "")]
    altered = objects("topics", "--alter", "--topic", name, "--partitions", "2", "--config", "retention.ms=60000")
    assert [row["action"] for row in altered] == ["altered", "altered"]
    (described,) = objects("topics", "--describe", "--topic", name)
    leader = described["partitions"][0]["leader"]
    assert described["partitions"][1] == {"partition": 1, "leader": leader, "replicas": [leader], "isr": [leader]}
    assert (described["partition_count"], described["configs"]["retention.ms"]) == (2, "60000")
    assert objects("topics", "--delete", "--topic", name) == [{"topic": name, "action": "deleted"}]


def test_json_errors_have_the_brokers_code(broker: Server, name: str) -> None:
    create = ("topics", "--bootstrap-server", broker.address, "--create", "--topic", name, "--json")
    run(*create)
    output, complaint = run(*create, status=1)
    assert output == ""
    exists = f"Topic '{name}' already exists (TOPIC_ALREADY_EXISTS); specify --if-not-exists to ignore this"
    assert json.loads(complaint) == {
        "error": f"topic {name} was not created: {exists}",
        "command": "txbroker topics", "status": 1, "code": "TOPIC_ALREADY_EXISTS",
    }  # fmt: skip
    write = ("produce", "--bootstrap-server", broker.address, "--topic", name, "--json", "--command-property", "no.such.key=1")
    complaint = run(*write, stdin="x\n")[1]
    assert json.loads(complaint) == {"warning": "no.such.key is not known to the client library and is ignored"}


def test_binary_keys_and_values(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address, "--topic", name)
    data = bytes(byte for byte in range(256) if byte not in b"\r\n")
    run("produce", *server, "--sync", stdin=data + b"\n" + data)
    output, _ = run("consume", *server, "--from-beginning", "--max-messages", "2", "--isolation-level", "read_committed")
    assert output.encode(errors="surrogateescape") == data + b"\n" + data + b"\n"


def test_records_that_cannot_be_deserialized(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address, "--topic", name)
    run("produce", *server, "--line-reader", "org.apache.kafka.tools.LineMessageReader", stdin="12345678\nno number\n87654321\n")
    read = ("consume", *server, "--from-beginning", "--timeout-ms", "1000", "--value-deserializer", "LongDeserializer")
    output, complaint = run(*read, status=1)
    assert output == f"{int.from_bytes(b'12345678', 'big')}\n"
    problem = f"the record at offset 1 of {name}-0 cannot be deserialized: Size of data received by LongDeserializer is not 8"
    assert complaint.splitlines()[-1] == f"txbroker consume: {problem}; correct the deserializer, or use --skip-message-on-error"
    output, complaint = run(*read, "--skip-message-on-error")
    assert output == "".join(f"{int.from_bytes(text, 'big')}\n" for text in (b"12345678", b"87654321"))
    assert problem in complaint.splitlines()


def test_files_of_properties(broker: Server, name: str, tmp_path: Path) -> None:
    reader, shown = tmp_path / "reader.properties", tmp_path / "formatter.properties"
    reader.write_text("parse.key=true\nkey.separator=:\n")
    shown.write_text("print.key=true\nkey.separator=:\n")
    server = ("--bootstrap-server", broker.address, "--topic", name)
    tuned = ("--max-block-ms", "20000", "--request-timeout-ms", "30000", "--message-send-max-retries", "3", "--retry-backoff-ms", "50",
             "--metadata-expiry-ms", "60000", "--socket-buffer-size", "65536", "--max-memory-bytes", "1000000", "--batch-size", "1000")
    run("produce", *server, "--reader-config", str(reader), "--reader-property", "key.separator=/", *tuned, stdin="k:1/v\n")
    read = ("consume", *server, "--from-beginning", "--max-messages", "1", "--formatter-config", str(shown))
    assert run(*read)[0] == "k:1:v\n"
    assert run(*read, "--formatter-property", "key.separator= = ")[0] == "k:1 = v\n"


def test_a_group_continues_where_it_stopped(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address, "--topic", name)
    run("topics", *server[:2], "--create", "--topic", name, "--partitions", "4")
    numbers = [str(i) for i in range(100)]
    run("produce", *server, "--property", "parse.key=true", "--property", "key.separator=:", stdin="\n".join(f"{i}:{i}" for i in numbers))
    read: list[str] = []
    for count in ("7", "50", "43"):
        output, complaint = run("consume", *server, "--group", name, "--from-beginning", "--max-messages", count)
        assert complaint == f"Processed a total of {count} messages\n"
        read += output.split()
    assert sorted(read) == sorted(numbers), "each once"
    assert run("consume", *server, "--group", name, "--from-beginning", "--timeout-ms", "1000")[0] == ""


def test_topics_by_an_expression(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address)
    for suffix in ("a", "b", "ab"):
        run("produce", *server, "--topic", f"{name}-{suffix}", stdin=suffix)
    for group in ((), ("--group", name)):
        output, _ = run("consume", *server, "--include", f"{name}-a,{name}-b", "--from-beginning", *group, "--timeout-ms", "1500")
        assert sorted(output.split()) == ["a", "b"]


def test_a_partition_from_an_offset(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address, "--topic", name)
    run("produce", *server, stdin="0\n1\n2\n3\n4\n")

    def consume(*argv: str, status: int = 0) -> tuple[str, str]:
        return run("consume", *server, "--partition", *argv, status=status)

    assert consume("0", "--offset", "3", "--max-messages", "2")[0] == "3\n4\n"
    assert consume("0", "--offset", "earliest", "--max-messages", "2")[0] == "0\n1\n"
    assert consume("0", "--timeout-ms", "500")[0] == ""
    assert consume("7", status=1)[1] == f"txbroker consume: topic {name} has no partition 7, only 0 to 0; correct --partition\n"


def test_a_missing_topic(start_broker: Callable[..., Server], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is immediate when the broker does not create topics."""
    monkeypatch.setattr(produce, "TOPIC_WAIT_MS", 3_600_000)
    server = start_broker({"auto.create.topics.enable": "false"})
    flags = ("--bootstrap-server", server.address, "--topic", name)
    for tool in ("produce", "consume"):
        output, complaint = run(tool, *flags, stdin="x\n", status=1)
        assert output == ""
        assert complaint.startswith(f"txbroker {tool}: topic {name} does not exist; see ")
        assert complaint.count("\n") == 1
    assert run("topics", "--bootstrap-server", server.address, "--list")[0] == "", "the topic was not created"


def test_rejected_lines(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address, "--topic", name)
    _, complaint = run("produce", *server, "--property", "parse.key=true", stdin="k\tv\nnothing\nk\tw\n", status=1)
    assert complaint.startswith("txbroker produce: line 2 has no key.separator ")
    assert run("consume", *server, "--from-beginning", "--max-messages", "1")[0] == "v\n", "earlier lines were written"
    assert run("get-offsets", *server)[0] == f"{name}:0:1\n", "later lines were not"
    large = ("--producer-property", "max.request.size=9000000")
    _, complaint = run("produce", *server, *large, stdin=b"small\n" + b"x" * 2_000_000 + b"\n", status=1)
    assert complaint.startswith(f"txbroker produce: line 2 was not written to {name}")
    assert "MESSAGE_TOO_LARGE" in complaint
    assert complaint.count("\n") == 1
    _, complaint = run("produce", *server[:2], "--topic", "no topic", status=1)
    assert complaint.endswith("; correct --topic\n")


def test_dump_log(broker: Server, name: str) -> None:
    run("produce", "--bootstrap-server", broker.address, "--topic", name, stdin="a\nb\n")
    directory = broker.partition_directory(name)
    log, index = directory / f"{0:020}.log", directory / f"{0:020}.index"
    output, complaint = run("dump-log", "--files", f"{log},{index}", "--print-data-log")
    assert complaint == ""
    assert output.startswith(f"Dumping {log}\nLog starting offset: 0\nbaseOffset: 0 ")
    assert output.count("| offset: ") == 2
    assert "payload: b\n" in output
    _, complaint = run("dump-log", "--files", str(directory / f"{7:020}.log"), status=1)
    assert complaint == f"{directory / f'{7:020}.log'} does not exist\n"


def test_ctrl_c_and_sigterm_end_a_consumer(broker: Server, name: str) -> None:
    run("produce", "--bootstrap-server", broker.address, "--topic", name, stdin="first\n")
    for number, group in ((signal.SIGINT, f"{name}-1"), (signal.SIGTERM, f"{name}-2")):
        flags = ("--bootstrap-server", broker.address, "--topic", name, "--group", group, "--from-beginning")
        with subprocess.Popen(command("consume", *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"first\n"
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 130
            assert process.stderr.read() == b"Processed a total of 1 messages\n"
        output, _ = run("consume", *flags, "--timeout-ms", "1000")
        assert output == "", "its offsets were committed"


def test_a_closed_pipe_ends_the_command(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address, "--topic", name)
    run("produce", *server, stdin="\n".join(str(i) for i in range(50_000)))
    with subprocess.Popen(command("consume", *server, "--from-beginning"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 1
        complaint = process.stderr.read().decode()
    assert re.fullmatch(r"Processed a total of \d+ messages\n", complaint)


def test_output_to_a_full_disk_and_to_a_closed_descriptor(broker: Server) -> None:
    flags = command("broker-api-versions", "--bootstrap-server", broker.address)
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(flags, stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert ended.stderr.decode() == (
        "txbroker broker-api-versions: no space left for the output (No space left on device); free some, or write to another disk\n"
    )
    unwritable = ["sh", "-c", 'exec "$@" >&-', "sh", *flags]
    closed = subprocess.run(unwritable, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False, timeout=PATIENCE_S)
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_an_http_server_instead_of_a_broker() -> None:
    """It responds with something other than frames."""
    script = (
        "import http.server; s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.BaseHTTPRequestHandler);"
        "print(s.server_port, flush=True); s.serve_forever()"
    )
    process = [sys.executable, "-c", script]
    with subprocess.Popen(process, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as web, tempfile.NamedTemporaryFile("w") as config:
        assert web.stdout is not None
        address = f"127.0.0.1:{int(web.stdout.readline())}"
        config.write("bootstrap.timeout.ms=1000\n")
        config.flush()
        try:
            for line in (["groups", "--list"], ["configs", "--describe", "--topic", "a"], ["get-offsets"]):
                _, complaint = run(line[0], "--bootstrap-server", address, "--command-config", config.name, *line[1:], status=1)
                problem = f"{address} accepts connections, but did not answer as a Kafka broker within 1 s; "
                assert complaint.startswith(f"txbroker {line[0]}: {problem}")
                assert complaint.count("\n") == 1
        finally:
            web.kill()


def test_control_characters_in_names_are_escaped_on_a_terminal(broker: Server, name: str) -> None:
    group = f"{name}\x1b[2J\rż"
    run("produce", "--bootstrap-server", broker.address, "--topic", name, stdin="v")
    run("consume", "--bootstrap-server", broker.address, "--topic", name, "--group", group, "--from-beginning", "--max-messages", "1")
    server = ("groups", "--bootstrap-server", broker.address)
    shown = on_terminal(*server, "--list")
    assert f"{name}\\x1b[2J\\rż\r\n" in shown
    assert "\x1b" not in shown + on_terminal(*server, "--describe", "--group", group)
    _, complaint = run(*server, "--describe", "--group", f"no-{group}", status=1)
    assert complaint == f"Consumer group 'no-{name}\\x1b[2J\\rż' does not exist; see `txbroker groups --list`\n"


def test_a_server_that_sends_nothing_instead_of_a_broker() -> None:
    script = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        address = f"127.0.0.1:{int(deaf.stdout.readline())}"
        config = ("--consumer-property", "bootstrap.timeout.ms=1000")
        try:
            _, complaint = run("consume", "--bootstrap-server", address, "--topic", "a", *config, status=1)
        finally:
            deaf.kill()
    answer = "did not answer as a Kafka broker within 1 s; correct --bootstrap-server, or security.protocol in its properties"
    assert complaint == f"txbroker consume: {address} accepts connections, but {answer}\n"


def test_progress_while_records_go_to_a_file(broker: Server, name: str, tmp_path: Path) -> None:
    """On the terminal, while the records go to a file."""
    server = ("--bootstrap-server", broker.address, "--topic", name)
    count = 150_000
    run("perf-produce", *server, "--num-records", str(count), "--record-size", "99", "--command-property", "batch.size=131072")
    ours, theirs = pty.openpty()
    read = command("consume", *server, "--from-beginning", "--max-messages", str(count))
    with open(tmp_path / "records", "wb") as output, subprocess.Popen(read, stdout=output, stderr=theirs, env=ENVIRONMENT) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):
            while data := os.read(ours, 65536):
                shown += data
        assert process.wait(PATIENCE_S) == 0
    os.close(ours)
    assert (tmp_path / "records").stat().st_size == 100 * count
    text = shown.decode()
    assert re.search(r"\r[\d,]+ records, [\d.]+ MB \(\d+ %\), [\d,]+ records/s, .{1,20} left\x1b\[K", text)
    assert text.endswith(f"\r\nProcessed a total of {count} messages\r\n")


def test_internal_topics_are_folded_on_a_terminal(broker: Server, name: str) -> None:
    server = ("--bootstrap-server", broker.address)
    find_coordinator(broker, name)
    described = on_terminal("topics", *server, "--describe", columns=120)
    assert "partitions: all with a leader, all replicas in sync (see --topic __consumer_offsets)" in described
    folded = on_terminal("topics", *server, "--describe").split("Topic: __consumer_offsets", 1)[1].split("Topic: ", 1)[0]
    assert "Partition  Leader" not in folded
    assert "Partition  Leader" in on_terminal("topics", *server, "--describe", "--topic", "__consumer_offsets")
    assert run("topics", *server, "--describe")[0].count("\tTopic: __consumer_offsets\tPartition: ") == 50, "scripts get all partitions"
    assert "The internal topic __consumer_offsets is not shown; use --topic" in on_terminal("log-cleaner", *server, "--describe")
    assert run("log-cleaner", *server, "--describe")[0].count("__consumer_offsets-") == 50


def test_on_a_terminal(broker: Server, name: str, tmp_path: Path) -> None:
    """A table that fits, and progress while a file is read."""
    server = ("--bootstrap-server", broker.address, "--topic", name)
    file = tmp_path / "lines"
    file.write_text("".join(f"{i:0100}\n" for i in range(300_000)))  # progress is shown after half a second
    shown = on_terminal("produce", *server, stdin=file)
    assert re.search(r"\r[\d,]+ records, [\d.]+ MB of 30\.3 MB \(\d+ %\), [\d,]+ records/s(, \d+ s left)?\x1b\[K", shown)
    assert shown.endswith("\r\n")
    assert "\r300,000 records, 30.3 MB of 30.3 MB (100 %)" in shown
    described = on_terminal("topics", "--describe", *server)
    assert [line.split() for line in described.splitlines() if "Partition " in line] == [["Partition", "Leader", "Replicas", "Isr"]]
    assert all(len(line) <= 80 for line in described.splitlines())
