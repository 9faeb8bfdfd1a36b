"""The structure of the project is a test: who may import whom, who may touch the outside, what must not be left lying about."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from txbroker.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "txbroker"
SIMULATION = ROOT / "simulation"

RANKS = {
    "build_info": 0, "errors": 0, "names": 0, "clock": 0, "config": 0, "purgatory": 0, "action_queue": 0, "backoff": 0, "retrying": 0,
    "repeated_lines": 0, "regular_files": 0, "platform": 0, "lazy_dataclass": 0,
    "wire": 1, "tls": 1,
    "log": 2, "client": 2,
    "cluster": 3, "console": 3, "logtools": 3, "mirror": 3,
    "client_quotas": 4, "security": 4, "coordinators": 4, "groups": 4, "transactions": 4, "peers": 4,
    "api": 5,
    "transport": 6, "connection": 6, "broker": 6, "maintenance": 6, "metrics": 6,
    "broker_service": 7, "tap": 7, "signals": 7, "startup": 7, "supervisor": 7, "log_output": 7, "cleaner_process": 7, "guard_process": 7,
    "garbage_collection": 7, "child_processes": 7, "broker_processes": 7, "tree_process": 7, "ready_file": 7,
    "spark": 8, "testing": 8, "cli": 9, "__main__": 9, "simulation": 10,
}  # fmt: skip
WITHOUT_TWISTED = ("wire", "tls", "log", "client", "errors", "names", "clock", "backoff", "config", "console", "spark")
TWISTED_CLIENT = "txbroker.client.twisted_connection"  # the brokers' own connections
# The places that ARCHITECTURE.md marks: they touch the operating system, the real reactor, the clock or chance.
OUTSIDE = ("build_info.py", "platform/", "broker_service.py", "tap.py",
           "signals.py", "startup.py", "supervisor.py", "cleaner_process.py", "guard_process.py",
           "garbage_collection.py", "ready_file.py", "regular_files.py",
           "child_processes.py", "broker_processes.py", "tree_process.py", "__main__.py", "cli/", "console/", "spark/", "testing/",
           "transport/",
           "tls/files.py", "client/blocking_connection.py", "client/coordinator_connection.py", "client/pipelined_connection.py",
           "client/topic_metadata.py", "client/topic_reader.py", "client/web_document.py", "log/os_disk.py", "log/cleaner/worker.py",
           "cluster/tree/sqlite.py", "cluster/tree/sqlite_file.py", "cluster/tree/kazoo_session.py",
           "cluster/tree/session_guard.py", "cluster/tree/zookeeper_tls.py", "simulation/__main__.py", "simulation/run.py",
           "simulation/chance.py", "simulation/memory_disk.py", "simulation/memory_names.py",
           "simulation/host_disk.py")  # fmt: skip
# What leads there: nobody else imports it.
WAYS_OUT = {
    "asyncio", "concurrent", "fcntl", "glob", "io", "mmap", "multiprocessing", "os", "pathlib", "resource", "secrets", "select", "shutil",
    "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip
NO_WAY_OUT = {"threading.Lock", "mmap.mmap"}
# The only places that read the wall clock: for timestamps of records, dates that are shown, and ages of records.
WALL_CLOCK = ("broker_service.py", "cli/", "testing/records.py", "testing/secured.py")
WALL_CLOCKS = re.compile(
    r"([\w.]+\.)?time\.(time|time_ns|CLOCK_REALTIME)|([\w.]+\.)?(datetime|date)\.(now|utcnow|today)|twisted\.python\.runtime.*"
)
# The only module that takes Twisted's reactor: it makes the reactor's clock monotonic.
TAKES_REACTOR = "broker_service.py"
BANNED_CALLS = {"open", "print", "input", "Random", "random.Random", "random.SystemRandom", "uuid.uuid1", "uuid.uuid4", "datetime.now"}
# Entry points, which nothing imports, the metadata tree of tests, the source of a generated module, and what tests run.
ENTRIES = {"txbroker.__main__", "txbroker.log.cleaner.worker", "txbroker.tap", "txbroker.cli.main",
           "txbroker.tree_process", "txbroker.platform.linux", "txbroker.platform.portable", "txbroker.platform.windows",
           "txbroker.cluster.tree.memory", "txbroker.cluster.tree.session_guard",
           "txbroker.wire.inline_varints", "txbroker.wire.record_loops_source", "txbroker.testing",
           "txbroker.testing.pause_guard", "txbroker.testing.pytest_plugin",
           "txbroker.testing.server", "txbroker.testing.cluster_server", "simulation.histories",
           "simulation.__main__"}  # fmt: skip
MODULE_LINES_MAX = 600
# What was to be done, and places of one machine.
LEFT = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b|((?<![\w.}/])|file://)/(home|root|work|Users)/|(?<![\w.}/])/tmp/(?!kafka-logs)")
# Words and phrases that a reader has to stop at, and which had crept in everywhere. CONTRIBUTING.md says what to write instead.
UNCLEAR = re.compile(
    r"\b(anew|nobody|whoever|whomever|told|tells|put[- ](ing[- ])?aside|passed over|passes over|is wanted|are wanted|who waits|gets? on"
    r"|divided by commas|divide it|lies? about|lies behind|is out(?! of)|counts as dead|given up|somebody|spoilt|doomed|mends?|mended|owes?"
    r"|in office|speaks against|by and by|what is (said|asked|told)|as one likes|behind the cut|hears? of|no role taken|timely offsets"
    r"|rooms|joints|caretaker|json can say|'s office|failed the controller|failed: a bug|can tell|to tell|tried again|whatever else"
    r"|is no json|requests came to|get the whole|unset, \S+ says|it is started again)\b",
    re.IGNORECASE,
)
TEXTS = (".py", ".md", ".cfg", ".toml", ".sh", ".go", ".java", ".mjs", ".js", ".scala", ".service", "Makefile", "Dockerfile", "make-venv")
# A count before a plural: names.amount has the singular, too.
COUNTED = re.compile(
    r"(%d|\{(len\([^{}]*\)|[a-z_.]*(count|present|left|total))\}) ([a-z-]+ )?"
    r"(topics|partitions|brokers|members|groups|records|batches|segments|logs|keys|offsets|replicas|entries|producers|connections|times)\b"
)
UNCLEAR_HERE = ("CONTRIBUTING.md",)  # lists them
MODULES = sorted([*PACKAGE.rglob("*.py"), *SIMULATION.rglob("*.py")])


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """The package that has a rank: the second part of a module's name, and the simulation as a whole."""
    parts = module.split(".")
    return parts[1] if parts[0] == "txbroker" and len(parts) > 1 else parts[0]


def inside_path(path: Path) -> str:
    """A module's path as the lists above have it: below `txbroker/`, or below the checkout."""
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            yield node.module, node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


@pytest.fixture(scope="module", autouse=True)
def _not_kept() -> Iterator[None]:
    """Millions of nodes would make the garbage collector slow in the tests after these."""
    yield
    parsed.cache_clear()
    nodes.cache_clear()


def rank_problems(module: str, tree: ast.AST) -> list[str]:
    problems = []
    own = RANKS[package_of(module)]
    for imported, line in imports(tree):
        package = package_of(imported)
        if imported.startswith(("txbroker.", "simulation")) and package in RANKS and RANKS[package] > own:
            problems.append(f"{module}:{line}: rank {own} imports {imported} of rank {RANKS[package]}")
    return problems


def outside_problems(module: str, tree: ast.AST) -> list[str]:
    """Ways to the operating system, the clock, threads, chance and the real reactor. Of `random`, only a type may be named."""
    problems = []
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in imported:
            chance = name.split(".")[0] == "random" and name != "random.Random"
            if chance or name == "twisted.internet.reactor" or (name.split(".")[0] in WAYS_OUT and name not in NO_WAY_OUT):
                problems.append(f"{module}:{node.lineno}: imports {name}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and ast.unparse(node.func) in BANNED_CALLS:
            problems.append(f"{module}:{node.lineno}: calls {ast.unparse(node.func)}")
    return problems


def clock_problems(module: str, tree: ast.AST) -> list[str]:
    """Names of the wall clock, and of Twisted's own reactor, whose clock it is until `broker_service.py` has changed that."""
    problems = []
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        for name in names:
            if WALL_CLOCKS.fullmatch(name) or name == "twisted.internet.reactor":
                problems.append(f"{module}:{node.lineno}: {name}")
    return problems


NAMES = (ast.Attribute, ast.Name)
DATES = {"now_ms", "_now_ms"}
DURATION = r"timeout|delay|backoff|interval|wait|pause|linger"


def deadline_problems(module: str, tree: ast.AST) -> list[str]:
    """Deadlines and delays that are computed from a date, and dates with which a timeout or a delay is added or compared."""
    problems = []
    for node in nodes(tree):
        if isinstance(node, ast.BinOp | ast.Compare):
            names = {found.attr if isinstance(found, ast.Attribute) else found.id for found in ast.walk(node) if isinstance(found, NAMES)}
            if names & DATES and any(re.search(DURATION, name) for name in names):
                problems.append(f"{module}:{node.lineno}: {ast.unparse(node)}")
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            is_deadline = any(re.search("deadline|timer|delay", ast.unparse(target)) for target in targets)
            computed = [node.value]
        elif isinstance(node, ast.Call):
            is_deadline = re.search(r"call_?later$", ast.unparse(node.func), re.IGNORECASE) is not None
            computed = node.args[:1]
        else:
            continue
        if is_deadline and any(re.search(r"\b_?now_ms\b|\btime\.time(_ns)?\b", ast.unparse(value)) for value in computed):
            problems.append(f"{module}:{node.lineno}: {ast.unparse(node)}")
    return problems


def reachable(entries: set[str], imported_by: dict[str, set[str]]) -> set[str]:
    """What the entries import, and what that imports, and so on; with the packages that it is in."""
    found: set[str] = set()
    waiting = list(entries)
    while waiting:
        module = waiting.pop()
        if module and module not in found:
            found.add(module)
            waiting += [*imported_by.get(module, ()), module.rpartition(".")[0]]
    return found


def circles(imported_by: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, directly or through others: the strongly connected sets (Tarjan), sorted."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in sorted(imported_by[module]):
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            circle = path[path.index(module) :]
            del path[path.index(module) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in sorted(imported_by):
        if module not in order:
            visit(module)
    return sorted(found)


def imported_modules(name: str, modules: dict[str, Path]) -> set[str]:
    """The modules that one imports. `from package import module` imports the module; that the package runs first is no circle."""
    found = set()
    for imported, _ in imports(parsed(modules[name])):
        if imported in modules and imported != name:
            found.add(imported)
    return {other for other in found if not any(each.rpartition(".")[0] == other for each in found) or not name.startswith(other)}


def test_modules_do_not_import_each_other_in_circles() -> None:
    modules = {name_of(path): path for path in MODULES}
    found = circles({name: imported_modules(name, modules) for name in modules})
    assert found == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}}) == [["a", "b", "c"], ["e", "f"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


# The rules for commits hold from the commit after this one on.
FIRST_RULES = "12f6c80"
SUBJECT_MAX = 72


def subject_problems(subject: str) -> list[str]:
    """What is wrong with the first line of a commit message (CONTRIBUTING.md, "Commits")."""
    problems = []
    if len(subject) > SUBJECT_MAX:
        problems.append(f"{subject!r} has {len(subject)} characters: the reason goes into the body")
    if ";" in subject:
        problems.append(f"{subject!r} joins two changes")
    if re.search(r"as an? (review|reader|user)\w* found", subject, re.IGNORECASE):
        problems.append(f"{subject!r} does not name the fault")
    return problems


def test_subjects_of_commits_are_short() -> None:
    assert subject_problems("A" * 73) and subject_problems("One; two") and subject_problems("Texts are shorter, as a review found")
    assert not subject_problems("Deadlines run on the monotonic clock")
    command = ["git", "log", "--no-merges", "--format=%s", f"{FIRST_RULES}..HEAD"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("no git checkout with that commit")
    assert [problem for subject in listed.stdout.splitlines() for problem in subject_problems(subject)] == []


def test_a_package_imports_its_own_rank_or_lower() -> None:
    modules = {name_of(path): path for path in MODULES if path != PACKAGE / "__init__.py"}
    assert {package_of(module) for module in modules} <= RANKS.keys(), "a package that ARCHITECTURE.md does not have"
    assert [problem for module, path in modules.items() for problem in rank_problems(module, parsed(path))] == []


def test_the_packages_of_commands_do_not_import_each_other() -> None:
    packages = {f"txbroker.cli.{path.name}" for path in (PACKAGE / "cli").iterdir() if (path / "__init__.py").exists()}
    assert len(packages) >= 5
    found = []
    for path in MODULES:
        for imported, line in imports(parsed(path)):
            package = ".".join(imported.split(".")[:3])
            if package in packages and not name_of(path).startswith(package):
                found.append(f"{name_of(path)}:{line}: imports {imported}")
    assert found == []


def test_the_checks_can_fail() -> None:
    assert rank_problems("txbroker.log.log", ast.parse("from txbroker.api.fetch import FetchHandler"))
    assert rank_problems("txbroker.wire.batch", ast.parse("import txbroker.log.log"))
    assert rank_problems("txbroker.cli.main", ast.parse("from simulation.cluster import Cluster"))
    assert not rank_problems("txbroker.api.fetch", ast.parse("from txbroker.log.log import Log"))
    for source in ("import time", "from time import time", "import os.path", "from random import random", "import random", "open('x')",
                   "from threading import Thread", "def f():\n  from twisted.internet import reactor", "print(1)", "x = Random(1)"):
        assert outside_problems("txbroker.log.log", ast.parse(source)), source
    for source in ("from random import Random", "from threading import Lock", "import uuid", "disk.open('x')", "random.random()"):
        assert not outside_problems("txbroker.log.log", ast.parse(source)), source
    for source in ("time.time()", "now = time.time_ns", "from time import time", "datetime.now(UTC)", "datetime.datetime.utcnow()",
                   "from twisted.internet import reactor", "from twisted.python.runtime import seconds"):
        assert clock_problems("txbroker.log.log", ast.parse(source)), source
    assert not clock_problems("txbroker.log.log", ast.parse("time.monotonic() + time.perf_counter() + clock.seconds() + self.time.timer"))
    for source in ("self._deadline = now_ms + 5", "deadline_ms: int = self._now_ms() + 1", "clock.callLater(at - now_ms(), f)"):
        assert deadline_problems("txbroker.log.log", ast.parse(source)), source
    for source in ("deadline = clock.seconds() + 1", "clock.callLater(0, f, now_ms)", "expire_ms = now_ms + 1"):
        assert not deadline_problems("txbroker.log.log", ast.parse(source)), source
    assert reachable({"a.b"}, {"a.b": {"a.c"}, "a.d": {"a.e"}, "a.e": {"a.d"}}) == {"a", "a.b", "a.c"}, "two that use each other are dead"
    assert all(LEFT.search(text) for text in ("# TO" + "DO: later", "cd /ho" + "me/me/txbroker", "file:///ro" + "ot/x", "X" + "XX"))
    assert not any(LEFT.search(text) for text in ("log.dirs=/tmp/kafka-logs", "http://x/home/", "${CURDIR}/root/x", "TODOS"))


def test_the_table_of_ranks_is_the_one_in_the_architecture() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("\n## Packages\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", section, flags=re.M)
    named = {package: int(rank) for rank, packages in rows for package in re.findall(r"`(\w+)/?`", packages)}
    assert named == {package: rank for package, rank in RANKS.items() if package != "__main__"}


def functions(tree: ast.Module) -> set[str]:
    """The functions and methods of a module, by their names with the class."""
    found = set()
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        found.update(prefix + member.name for member in members if isinstance(member, ast.FunctionDef))
    return found


def test_the_paths_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    paths = [text.split(f"\n## {heading}\n")[1].split("\n## ")[0] for heading in ("A produce request", "A fetch request")]
    for path in paths:
        steps = re.findall(r"^\| \d+ \| `([\w/.]+)` \| `([\w.]+)` \|", path, flags=re.M)
        assert len(steps) == len(re.findall(r"^\| \d+ \|", path, flags=re.M)) > 10
        assert [(file, name) for file, name in steps if name not in functions(parsed(PACKAGE / file))] == []
    named = set(re.findall(r"`([\w/.]+\.py)`", text))
    assert [name for name in sorted(named) if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("name", "least"), [("cluster", 80), ("security", 25)])
def test_the_tests_in_the_table_of_faults_exist(name: str, least: int) -> None:
    folder = ROOT / "tests" / name
    named = re.findall(r"`([\w./]+\.py)(?:::(test_\w+))?`", (folder / "README.md").read_text())
    named = [(path, test) for path, test in named if test or "/test_" in f"/{path}"]
    assert len(named) > least
    for path, test in named:
        file = (ROOT if path.startswith("tests/") else folder) / path
        assert re.search(rf"^def {test or 'test_'}", file.read_text(), re.MULTILINE), f"{path}::{test}"


def test_lower_packages_do_not_import_twisted() -> None:
    lower = [path for path in MODULES if package_of(name_of(path)) in WITHOUT_TWISTED and name_of(path) != TWISTED_CLIENT]
    found = [(name_of(path), i) for path in lower for i, _ in imports(parsed(path)) if i.split(".")[0] in ("twisted", "zope", "asyncio")]
    assert found == []


def test_only_marked_places_touch_the_outside() -> None:
    inside = [path for path in MODULES if not inside_path(path).startswith(OUTSIDE)]
    assert [problem for path in inside for problem in outside_problems(name_of(path), parsed(path))] == []


def test_only_marked_modules_read_the_wall_clock() -> None:
    found = {inside_path(path): clock_problems(name_of(path), parsed(path)) for path in MODULES}
    assert [problem for name, problems in found.items() if not name.startswith(WALL_CLOCK) for problem in problems] == []
    reactors = [problem for name, problems in found.items() if name != TAKES_REACTOR for problem in problems if problem.endswith("reactor")]
    assert reactors == [], "broker_service.monotonic_reactor returns it"


def test_deadlines_and_delays_are_not_computed_from_dates() -> None:
    found = [problem for path in MODULES for problem in deadline_problems(name_of(path), parsed(path))]
    # Commands compare dates that brokers have stored. A new coordinator computes once what is left of a timeout.
    dated = [problem for problem in found if problem.startswith(("txbroker.cli.", "txbroker.transactions.coordinator:"))]
    assert [problem for problem in found if problem not in dated] == [] and len(dated) == 4
    for late in ("until_ms = self._now_ms() + timeout_ms", "start_ms + session_timeout_ms > now_ms", "deadline = now_ms"):
        assert deadline_problems("late", ast.parse(late)) != []


def test_every_module_is_used() -> None:
    imported_by = {name_of(path): {imported for imported, _ in imports(parsed(path))} for path in MODULES}
    imported_by["txbroker.cli.main"] |= {f"txbroker.cli.{module}" for module in COMMANDS.values()}
    messages = {name_of(path) for path in (PACKAGE / "wire" / "messages").glob("*.py")}  # declared whole, whoever uses them
    assert imported_by.keys() - messages - reachable(ENTRIES, imported_by) == set()


def test_modules_say_what_they_are_and_stay_small() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(parsed(path))] == [], "a module begins with what it is for"
    lines = {name_of(path): path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    assert {module: count for module, count in lines.items() if count > MODULE_LINES_MAX} == {}, "which two things are they?"


def lines_with(pattern: re.Pattern[str], except_below: tuple[str, ...] = ()) -> list[str]:
    """Where tracked texts match, as `file:line: text`. This file has all the words itself."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")
    names = [name for name in tracked if name.endswith(TEXTS)]
    if not names:
        pytest.skip("not a git checkout")
    found = []
    for name in names:
        if (ROOT / name).exists() and name != "tests/test_tidy.py" and not (except_below and name.startswith(except_below)):
            text = (ROOT / name).read_text(encoding="utf-8")
            if not pattern.search(text):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if pattern.search(line):
                    found.append(f"{name}:{number}: {line.strip()[:120]}")
    return found


def test_no_leftovers() -> None:
    assert lines_with(LEFT) == []


def test_counts_have_singular_and_plural() -> None:
    assert COUNTED.search('f"{len(found)} records"') and COUNTED.search('"%d new members"')
    assert not COUNTED.search("""f"{amount(len(found), 'record')}\"""") and not COUNTED.search('"%d of %d bytes"')
    # The compiled walk over records is exempt: only a malformed batch gives its text.
    assert [line for line in lines_with(COUNTED) if line.startswith("txbroker/") and "record_loops" not in line] == []


# How the code once put it, and would not be understood.
ONCE = """Rooms; Joints; values that JSON can say; The controller's office; the metadata tree failed the controller; failed: a bug
which no answer can tell; no role taken; put aside; was given up; making its indexes anew; lies behind the cut; passed over; counts as dead
the member is out; closed to tell; it is tried again; whatever else fails like that; the metrics cannot be told; timely offsets
divided by commas; is no JSON; divide it; is wanted; until somebody has agreed; What requests came to; how a group gets on
how much may lie about; now get the whole; What a producer owes its broker; unset, log.roll.hours says"""


def test_plain_technical_english() -> None:
    assert [phrase for phrase in re.split(r"[;\n]", ONCE) if not UNCLEAR.search(phrase)] == []
    assert not UNCLEAR.search("the controller is notified that an offset is out of range")
    assert lines_with(UNCLEAR, except_below=UNCLEAR_HERE) == []
