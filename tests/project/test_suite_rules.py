"""No test depends on luck: none sleeps to wait, asserts a duration, or chooses a port. None knows
the inside of what it tests: no private names. None has a length that no run uses."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.code_rules import private_names_stay_inside
from tests.project.layers import Rule
from tests.project.package_source import Source

ROOT = Path(__file__).parents[2]

PACED: dict[str, str] = {
    "tests/support/polling.py": "the only place that polls",
    "tests/abuse/support/neighbor.py": "a neighbor's requests, so many a second",
    "tests/abuse/test_attacks.py": "the head of a request in its own packet",
    "tests/auth/test_jwks.py": "a server that sends byte by byte",
    "tests/engines/jetstream/test_kill.py": "a node is away for a random time",
    "tests/engines/rocksdb/test_kill.py": "kills at random moments",
    "tests/engines/support/jetstream_load.py": "writers, and faults at random moments",
    "tests/scheduling/test_eager_task.py": "work that waits for a timer is what it tests",
    "tests/search/test_rebuild.py": "kills at random moments",
    "tests/serve/support/raw_connections.py": "each piece of a request in its own packet",
    "tests/service/schema_service/test_schema_restarts.py": "writers that try again",
    "tests/service/support/counting_process.py": "a program that is killed at any of its steps",
    "tests/service/support/killed_erasure.py": "a program that is killed at any of its steps",
    "tests/service/support/listening_clients.py": "players that read at their own time",
    "tests/service/support/loaded_service.py": "a commit periodically",
    "tests/service/support/pings.py": "requests, so many a second",
    **dict.fromkeys(
        (
            f"tests/simulation/{name}.py"
            for name in (
                *("jobs", "library", "operations", "service", "shared_tasks", "test_running"),
                "usage",
            )
        ),
        "simulated time",
    ),
    "tests/service/support/shared_task_process.py": "a program that is killed while it works",
    "tests/store/support/killed_writer.py": "a slow disk",
    "tests/store/support/opening_process.py": "work that takes a while, in many processes",
    "tests/store/test_kill.py": "kills at random moments",
    "systems/playlist/tests/test_playlist_cluster.py": "callers that try again",
    "systems/rosey/tests/test_rosey_kill.py": "callers that try again",
}
"""Files that may sleep: to pace a load, never to wait for something."""

CLOCKS = {"time.monotonic", "time.perf_counter", "time.time", "monotonic", "perf_counter"}

TIMED: dict[str, str] = {
    "tests/support/polling.py": "gives up, after two minutes",
    "tests/support/terminal.py": "gives up, after a minute",
    "tests/engines/jetstream/test_engine.py": "true also if the machine was slow",
    "tests/engines/rocksdb/test_kill.py": "asserted by `make soak` alone",
    "tests/store/test_kill.py": "asserted by `make soak` alone",
}
"""Files that may compare a time in an assertion."""


PRIVATE: dict[str, str] = {
    "tests/nats/test_hostile.py": "breaks nats-py's parser: test_private_names.py has its names",
    "tests/nats/test_partitions.py": "stops the reads of one connection of nats-py",
    "tests/nats/test_urls.py": "a reconnection of nats-py that loses its cancellation",
    "tests/support/failure_report.py": "Hypothesis tells the seed of a failure nowhere else",
    "systems/history/tests/test_history_iam.py": "botocore has no other place that sees all calls",
}
"""Files that use private names of a library."""


def dotted(function: ast.expr) -> str:
    """Return `sleep` or `time.sleep`; of a longer name, "": `ast.unparse` takes ten times as
    long."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}"
    return ""


def sleeps(source: Source) -> Iterator[str]:
    for node in source.nodes:
        match node:
            case ast.Call(func=function, args=[seconds]) if (
                dotted(function) in ("time.sleep", "asyncio.sleep", "sleep")
                and ast.unparse(seconds) != "0"
            ):
                yield (
                    f"{source.at(node.lineno)} sleeps: wait for a condition with "
                    "`tests.support.polling`, or let tasks run with its `loop_turns`"
                )


def durations(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Assert) and any(
            isinstance(call, ast.Call) and not call.args and dotted(call.func) in CLOCKS
            for compared in ast.walk(node.test)
            if isinstance(compared, ast.Compare)
            for call in ast.walk(compared)
        ):
            yield (
                f"{source.at(node.lineno)} asserts a duration, which depends on the machine: "
                "count steps, turns or calls, or assert it in `make soak` alone"
            )


def ports(source: Source) -> Iterator[str]:
    for node in source.nodes:
        match node:
            case (
                ast.Call(
                    func=ast.Attribute(attr="bind" | "create_server"),
                    args=[ast.Tuple(elts=[_, ast.Constant(value=port)]), *_],
                )
                | ast.Call(
                    func=ast.Attribute(attr="start_server"),
                    args=[_, _, ast.Constant(value=port)],
                )
            ) if port != 0:
                yield f"{source.at(node.lineno)} chooses a port: use 0, and ask which it got"


def lengths(source: Source) -> Iterator[str]:
    """A test of another length in `make test-all` and in a soak is marked for them."""
    names = {each.attr for each in source.nodes if isinstance(each, ast.Attribute)}
    is_marked = "soak" in names or any("hypothesis" in each.module for each in source.imports)
    for node in source.nodes:
        match node:
            case ast.Call(func=ast.Name(id="size")) if (
                source.path.name.startswith("test_") and not is_marked
            ):
                yield (
                    f"{source.at(node.lineno)} takes a length: mark its test `soak`, or "
                    "`make test-all` and `make soak` leave it out"
                )


RULES: tuple[tuple[Rule, dict[str, str]], ...] = (
    (sleeps, PACED),
    (durations, TIMED),
    (ports, {}),
    (lengths, {}),
    (private_names_stay_inside, PRIVATE),
)


def test_the_tests_follow_the_rules() -> None:
    found = []
    for path in sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("systems/*/tests/**/*.py")]):
        source = Source(ROOT, path, ast.parse(path.read_text()), (ROOT,))
        file = str(path.relative_to(ROOT))
        for rule, allowed in RULES:
            violations = list(rule(source))
            if file not in allowed:
                found += violations
            elif not violations:
                found.append(f"{file} is no longer needed in a table of this file: delete it there")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("time.sleep(0.1)", "sleeps"),
        ("async def f():\n    await asyncio.sleep(seconds)", "sleeps"),
        ("assert time.monotonic() - start < 5", "asserts a duration"),
        ("socket.create_server(('127.0.0.1', 8080))", "chooses a port"),
        ("KILLS = size(5, 50, 500)", "takes a length"),
        ("assert engine._rows == {}", "a private name"),
        ("from keyhouse.store.store import _open", "a private name"),
        ("monkeypatch.setattr(engine, '_rows', {})", "a private name"),
        ("monkeypatch.setattr('keyhouse.store.store._open', None)", "a private name"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "tests" / "test_x.py"
    source = Source(tmp_path, path, ast.parse(text), (tmp_path,))
    [found] = [each for rule, _ in RULES for each in rule(source)]
    assert sentence in found
