"""Change the source of keys, schema and store in small ways, and count the changes that no test
notices: `python -m tools.mutation [--mutants 60] [--seed 1] [FOLDER...]`, in the tree to measure.

The tests run once with the line contexts of coverage (`--data` keeps them for the next run). Each
mutant of the sample is then run in a copy of the source with the tests that cover its line, the
quickest first, on the memory engine, until one fails: first those of `make test`, then the
survivors with those of `make test-all`, which has more cases. Random tests have a fixed seed, so
that a result can be repeated.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import pytest
from coverage import CoverageData

FOLDERS: Final = ("keys", "schema", "store")
TESTS: Final = ("tests/base", "tests/advice", "tests/keys", "tests/schema", "tests/store")
TIMEOUT_SECONDS: Final = 300
WORKERS: Final = 2

OPERATORS: Final[dict[type[Any], type[Any]]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult},
}


class Mutant(NamedTuple):
    file: str
    line: int
    change: str
    source: str
    tests: list[str]


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield other forms of a node, each with its description."""
    new: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            new.ops = [OPERATORS[type(op)]()]
            yield "operator", new
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in OPERATORS:
            new.op = OPERATORS[type(op)]()
            yield "operator", new
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", operand
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return", ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
            yield "statement", ast.Pass()
        case ast.Continue() | ast.Break():
            yield "statement", ast.Pass()


def mutants(file: Path, covering: dict[int, list[str]]) -> Iterator[Mutant]:
    """Yield all mutants of the lines that tests cover."""
    tree = ast.parse(file.read_text())
    for parent in ast.walk(tree):
        for name, field in ast.iter_fields(parent):
            if name in ("annotation", "returns"):
                continue
            for at, node in enumerate(field if isinstance(field, list) else [field]):
                tests = covering.get(getattr(node, "lineno", 0), [])
                for kind, new in changes(node) if tests else ():
                    owner: Any = field if isinstance(field, list) else vars(parent)
                    key = at if isinstance(field, list) else name
                    before = ast.unparse(node).partition("\n")[0]
                    owner[key] = ast.fix_missing_locations(ast.copy_location(new, node))
                    change = f"{kind}: {before}  ->  {ast.unparse(new)}"
                    yield Mutant(str(file), node.lineno, change, ast.unparse(tree), tests)
                    owner[key] = node


def environment(tests: str, source: Path, **more: str) -> dict[str, str]:
    fixed = {"TEST_ENGINES": "memory", "TEST_SEED": "1", "TEST_TIER": tests}
    return os.environ | fixed | {"PYTHONPATH": str(source.resolve())} | more


def child(job: dict[str, Any], **variables: Any) -> int:
    """Run `main` of this file with a job; return its exit code, 1 after the timeout."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job | {"folder": folder}))
        program = subprocess.Popen(
            [sys.executable, __file__, "--job", str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **variables,
        )
        try:
            return program.wait(TIMEOUT_SECONDS if "tests" in job else None)
        except subprocess.TimeoutExpired:
            program.kill()
            return 1


def name_of(test: str) -> str:
    """Return the id of a test; in `make test-all` without parameters, since there are more."""
    return test if os.environ["TEST_TIER"] == "usual" else test.partition("[")[0]


class Job:
    """A plugin of pytest. It traces all tests and notes their durations, or runs some of them."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if (tests := self.job.get("tests")) is not None:
            order: dict[str, int] = {}
            for test in tests:
                order.setdefault(name_of(test), len(order))
            chosen = [item for item in items if name_of(item.nodeid) in order]
            items[:] = sorted(chosen, key=lambda item: order[name_of(item.nodeid)])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    def run(self) -> int:
        tests = self.job.get("tests")
        traced = ["--cov", "--cov-report=", "--cov-context=test"] if tests is None else ["-x"]
        which = TESTS if tests is None else sorted({test.split("::")[0] for test in tests})
        options = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=1", "--basetemp"]
        marks = ["-m", "not extra"] if os.environ["TEST_TIER"] == "usual" else []
        folder = str(Path(self.job["folder"]) / "pytest")
        code = pytest.main([*which, *options, folder, *marks, *traced], plugins=[self])
        if tests is None:
            Path(self.job["seconds"]).write_text(json.dumps(self.seconds))
        return int(code)


def covering_tests(folder: Path) -> dict[str, dict[int, list[str]]]:
    """Return the tests that cover each line of each file, the quickest first."""
    folder.mkdir(exist_ok=True)
    seconds_path, data_path = folder / "usual.json", folder / "usual.coverage"
    if not seconds_path.exists():
        variables = environment("usual", Path("src"), COVERAGE_FILE=str(data_path))
        child({"seconds": str(seconds_path)}, env=variables)
    seconds = json.loads(seconds_path.read_text())
    data = CoverageData(str(data_path))
    data.read()
    return {
        os.path.relpath(file): {
            line: sorted({each.rpartition("|")[0] for each in contexts if each}, key=seconds.get)
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in sorted(data.measured_files())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        sys.exit(Job(json.loads(options.job.read_text())).run())
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(WORKERS) as pool:
        sources: SimpleQueue[Path] = SimpleQueue()
        for worker in range(WORKERS):
            sources.put(Path(shutil.copytree("src", Path(name) / f"src-{worker}")))

        def survives(tests: str, mutant: Mutant) -> bool:
            source = sources.get()
            path = source / Path(mutant.file).relative_to("src")
            before = path.read_text()
            path.write_text(mutant.source)
            path.with_name("__pycache__").joinpath(f"{path.stem}.cpython-311.pyc").unlink(True)
            variables = environment(tests, source, PYTHONDONTWRITEBYTECODE="1")
            code = child({"tests": mutant.tests}, env=variables)
            path.write_text(before)
            sources.put(source)
            return code == 0

        covering = covering_tests(options.data or Path(name) / "data")
        chosen: dict[str, list[Mutant]] = {}
        for folder in options.folders:
            every = [
                mutant
                for file, tests_of in covering.items()
                if file.startswith(f"src/keyhouse/{folder}/")
                for mutant in mutants(Path(file), tests_of)
            ]
            count = min(options.mutants, len(every))
            chosen[folder] = random.Random(options.seed).sample(every, count)
        left = dict(chosen)
        for tests in ("usual", "all"):
            for folder, mutants_of in left.items():
                survived = pool.map(partial(survives, tests), mutants_of)
                left[folder] = [
                    each for each, there in zip(mutants_of, survived, strict=True) if there
                ]
                count = len(chosen[folder])
                print(f"{folder}, {tests}: {count - len(left[folder])} of {count} are noticed")
                for each in left[folder]:
                    print(f"  {each.file}:{each.line}  {each.change}", flush=True)


if __name__ == "__main__":
    main()
