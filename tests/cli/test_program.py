"""The program: startup time, help, errors and exit codes."""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from keyhouse.advice.install import install_line
from keyhouse.cli.app import app
from tests.support.program import SOURCE, run
from tools.reference import commands

HELP_SECONDS_MAX = 0.3
BARE_RATIO_MAX = 20
"""On a slow machine, help may take this many times the startup time of Python."""

BOARD = "keyhouse.demo.clips:BOARD"


def cpu_seconds(cache: Path, *arguments: str) -> float:
    """Return the CPU time of the fastest of six processes. The first one writes the bytecode, which
    an installed program has."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONPYCACHEPREFIX": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    times = []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@pytest.mark.extra  # it measures time; the modules that help imports are tested always
def test_help_is_fast(tmp_path: Path) -> None:
    """Other programs on the same core make it slower, so the best of five measurements counts."""
    for _ in range(5):
        taken = cpu_seconds(tmp_path, "-m", "keyhouse.cli", "--help")
        limit = max(HELP_SECONDS_MAX, BARE_RATIO_MAX * cpu_seconds(tmp_path, "-c", "pass"))
        if taken < limit:
            return
    raise AssertionError((taken, limit))


HEAVY = (
    "rich",
    "apsw",
    "interegular",
    "pydantic",
    "asyncpg",
    "nats",
    "starlette",
    "prometheus_client",
    "structlog",
    "tomllib",
)
"""Modules that are slow to import. Help, and so the start of every command, does not import them;
it reads only the names of the installed systems.
"""


def test_help_imports_neither_rich_nor_a_driver() -> None:
    program = "import sys; from keyhouse.cli.app import app; app(['--help'], standalone_mode=False)"
    shown = run(
        program=("-c", f"{program}; print('loaded:', [m for m in sys.modules if m in {HEAVY}])")
    )
    assert "loaded: []" in shown.stdout


def test_help_lists_every_command_and_exit_code() -> None:
    shown = run("--help").stdout
    for word in (
        "describe",
        "explain",
        "Exit codes:",
        "  0  Success.",
        "  3  Not found",
        "130  Interrupted",
    ):
        assert word in shown


@pytest.mark.parametrize("of", [(), ("rosey",), ("streamkit",)])
def test_help_describes_each_command_in_a_full_sentence(of: tuple[str, ...]) -> None:
    """On a terminal of 80 columns, no sentence is cut with `...`."""
    shown = run(*of, "--help", environment={"COLUMNS": "80"}).stdout
    [listed] = re.findall(r"^Commands:\n((?:  \S.*\n)+)", shown, re.MULTILINE)
    for line in listed.splitlines():
        assert line.endswith(".") and "..." not in line, line


def test_help_fits_80_columns_and_names_values_in_capitals() -> None:
    """Examples were longer than the 80 columns of a terminal, and options took an `<int range>` and
    a `<path>`."""
    for name, _ in commands(typer.main.get_command(app)):
        shown = CliRunner().invoke(app, [*name.split(), "--help"], terminal_width=80).stdout
        usage, *lines = shown.splitlines()
        assert not re.search(r"[{[][a-z_]+[]}]", usage) and not re.search(
            r"^ +-.* <\w", shown, re.MULTILINE
        ), shown
        assert not [line for line in lines if len(line) > 80], shown


def test_every_command_has_valid_examples() -> None:
    group: Any = typer.main.get_command(app)
    for name, command in commands(group):
        _, _, shown = (command.help or "").partition("\b\nExamples:\n")
        lines = [line.strip() for line in shown.splitlines() if f"keyhouse {name}" in line]
        assert lines, f"keyhouse {name} has no examples: see `examples` in keyhouse.cli.options"
        for line in lines:
            words = shlex.split(re.split(r" [|>] ", line[line.index(f"keyhouse {name}") :])[0])
            options = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words[2:] if word.startswith("-")} <= options, line


def test_no_arguments_prints_help() -> None:
    assert "Usage: keyhouse" in run(code=2).stderr


def test_the_installed_program_is_the_module() -> None:
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["keyhouse"].partition(":")
    installed = ("-c", f"from {module} import {name}; {name}()")
    assert run("--help", program=installed).stdout == run("--help").stdout
    assert run("--version", program=installed).stdout == f"keyhouse {project['version']}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe",),
        ("describe", "rosie"),
        ("describe", "no.such.module:NAME"),
        ("get", "rosie", "theme"),
        ("list", "rosie"),
        ("describe", "keyhouse.demo.clips:NO_SUCH"),
        ("describe", "keyhouse.demo.clips:CLIP"),
        ("explain", BOARD),
        ("explain", BOARD, "clip:goal", "--no-such-option"),
        ("no-such-command",),
    ],
)
def test_a_usage_error_exits_with_2_and_the_reason(arguments: tuple[str, ...]) -> None:
    ran = run(*arguments, code=2)
    assert "Error" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_unknown_system_is_rejected_with_the_known_ones() -> None:
    assert "audiobooks" in run("describe", "rosie", code=2).stderr


def test_an_error_is_one_sentence_with_its_fields() -> None:
    ran = run(
        "explain", BOARD, "clip:goal", "--store", "sqlite:gone.db", "--space", "channel-7", code=1
    )
    assert ran.stderr == (
        "keyhouse: The file does not exist; check the URL, or store something there first. "
        "(file='gone.db')\n"
    )
    assert ran.stdout == ""


def test_an_error_is_json_for_programs() -> None:
    ran = run(
        "explain",
        BOARD,
        "clip:goal",
        "--store",
        "sqlite:gone.db",
        "--space",
        "channel-7",
        "--json",
        code=1,
    )
    assert json.loads(ran.stderr) == {
        "error": "The file does not exist; check the URL, or store something there first.",
        "type": "usage",
        "code": "VALIDATION_ERROR",
        "status": 400,
        "fields": {"file": "gone.db"},
    }


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["get", BOARD, "clip", "goal"], "clip:goal"),
        (["explain", BOARD, "clip", "goal", "x"], "clip:goal:x"),
        (["delete", BOARD, "clip", "goal"], "clip:goal"),
        (["list", BOARD, "clip", "goal"], "clip:goal"),
        (["put", BOARD, "clip", "goal", "{}"], "clip:goal"),
    ],
)
def test_a_key_in_several_arguments_is_shown_as_one(words: list[str], key: str) -> None:
    """It was "Got unexpected extra argument (goal)" and nothing else."""
    failed = " ".join(run(*words, code=2).stderr.split())
    assert f"A key is one argument, as in {key}." in failed


def test_an_extra_argument_of_a_command_without_keys_is_named() -> None:
    assert "Got unexpected extra argument (b)" in run("doctor", "rosey", "b", code=2).stderr


def test_reading_a_missing_store_creates_no_file(tmp_path: Path) -> None:
    run(
        "explain", BOARD, "clip:a", "--store", "sqlite:new.db", "--space", "a", cwd=tmp_path, code=1
    )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_engine_is_rejected() -> None:
    ran = run(
        "explain", BOARD, "clip:goal", "--store", "mysql://db", "--space", "channel-7", code=1
    )
    assert "Unknown scheme in the engine URL;" in ran.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ([], "cli"),
        (["get"], "cli"),
        (["serve"], "serve"),
        (["token"], "serve"),
        (["studio"], "serve"),
    ],
)
def test_without_the_extra_the_error_names_the_one_that_the_command_needs(
    words: list[str], extra: str
) -> None:
    """`serve` named `[cli]`, and after that `[serve]`; both lines failed: no index has Keyhouse."""
    program = (
        "import sys; sys.modules['typer'] = None; from keyhouse.cli.__main__ import main; main()"
    )
    shown = run(*words, program=("-c", program), code=1).stderr
    assert f"{install_line(extra)}\n" in shown and f"[{extra}]'" in shown


def test_a_closed_pipe_is_not_an_error() -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    program = [sys.executable, "-m", "keyhouse.cli", "describe", BOARD]
    with subprocess.Popen(
        program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""


def test_a_full_disk_is_one_sentence() -> None:
    """The output went to a file on a full disk: there was a traceback, and cron mailed that."""
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "keyhouse.cli", "describe", "rosey"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ran.returncode == 1
    assert ran.stderr.startswith("keyhouse: The disk of the file is full: free space")
    assert ran.stderr.count("\n") == 1


def test_a_terminal_without_the_characters_gets_escapes() -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "ascii"}
    program = [sys.executable, "-m", "keyhouse.cli", "describe", BOARD]
    ran = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert "\\u2192" in ran.stdout
