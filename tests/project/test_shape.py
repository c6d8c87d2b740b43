"""The size of folders and systems, as ADR 0070 limits it: a reader has to look through them."""

from pathlib import Path

import pytest

import keyhouse
from keyhouse.cli.app import COMMAND_FUNCTIONS
from keyhouse.service.registry import system_names

PACKAGE = Path(keyhouse.__file__).parent
ADVICE = "merge what has one user, or change the limit in ADR 0070 with its reason"

CLI_FILES_MAX = 39

SERVING = ("serve", "http", "auth", "nats")
SERVING_FILES_MAX = 63
LINES_MAX = {"rosey": 1_450, "streamkit": 2_110}
SERVICE_LINES_MAX = {"playlist": 160}
OTHER_SERVICE_LINES_MAX = 70


def files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in (PACKAGE / folder).rglob("*.py")]


def system_package(system: str) -> Path:
    return PACKAGE.parents[1] / "systems" / system / "src" / f"keyhouse_{system}"


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_the_command_line_has_few_files_and_those_of_commands_have_their_names() -> None:
    own = {path.stem.rstrip("_") for path in (PACKAGE / "cli" / "commands").glob("[a-z]*.py")}
    assert own <= set(COMMAND_FUNCTIONS)
    assert len(files("cli")) <= CLI_FILES_MAX, ADVICE


def test_the_folders_that_serve_requests_have_few_files() -> None:
    assert len(files(*SERVING)) <= SERVING_FILES_MAX, ADVICE


@pytest.mark.parametrize("system", LINES_MAX)
def test_a_system_is_short(system: str) -> None:
    assert sum(map(lines, system_package(system).rglob("*.py"))) <= LINES_MAX[system], ADVICE


@pytest.mark.parametrize("system", system_names())
def test_the_service_of_a_system_fits_on_a_page(system: str) -> None:
    limit = SERVICE_LINES_MAX.get(system, OTHER_SERVICE_LINES_MAX)
    assert lines(system_package(system) / "service.py") <= limit, ADVICE
