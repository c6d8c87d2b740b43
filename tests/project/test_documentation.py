"""The documentation is true: names exist, everything is documented, and examples run."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from keyhouse.cli.app import COMMAND_FUNCTIONS
from keyhouse.service.registry import system_names

ROOT = Path(__file__).parents[2]
COMMANDS = {*COMMAND_FUNCTIONS, *system_names()}
ARCHITECTURE_LINES_MAX = 160


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git tracks or would track, so that new pages are checked too."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return sorted(
        ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()
    )


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a Markdown page."""
    return [
        Block(*block)
        for block in re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ]


def prose(page: str) -> str:
    """Return a Markdown page without code."""
    return re.sub(
        r"`[^`\n]+`", "", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    )


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(
        r"^#+ +(.*)$",
        re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def broken_links(path: Path) -> Iterator[str]:
    """Return the broken relative links of a page."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        target_path, _, anchor = link.partition("#")
        target = (path.parent / target_path) if target_path else path
        if not target.exists():
            yield f"{path.name} links to {link}, which does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            yield f"{path.name} links to {link}, but that page has no such heading"


def make_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE))


# Written so that this file does not match itself.
MACHINE = re.compile(
    r"/(?:wor[k]|roo[t]|far[m]|hom[e]/\w+|User[s]/\w+|tm[p]/bash_jobs|op[t]/(?:pypi|wheels))[/.]"
)


def machine_paths(text: str) -> list[str]:
    """Return lines with a path that exists on one machine only."""
    return [line.strip() for line in text.splitlines() if MACHINE.search(line)]


# The README


def readme_commands() -> list[str]:
    shells = [
        block.text
        for block in blocks((ROOT / "README.md").read_text())
        if block.language in ("sh", "bash", "console")
    ]
    return [
        line.removeprefix("$ ").split("#")[0].strip()
        for text in shells
        for line in text.splitlines()
        if line.strip()
    ]


def test_the_readme_shows_make_test_and_make_serve() -> None:
    assert {"make test", "make serve"} <= set(readme_commands())


def test_make_commands_of_the_readme_are_targets() -> None:
    named = {command.split()[1] for command in readme_commands() if command.startswith("make ")}
    assert named <= make_targets((ROOT / "Makefile").read_text())


def test_keyhouse_commands_of_the_readme_exist() -> None:
    named = sorted(
        {
            command.split()[1]
            for command in readme_commands()
            if re.match(r"(\S*/)?keyhouse [a-z]", command)
        }
    )
    for command in named:
        ran = subprocess.run(
            [sys.executable, "-m", "keyhouse.cli", command, "--help"],
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, f"keyhouse {command}: {ran.stderr}"


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    """Run all blocks as one program in an empty folder."""
    script = tmp_path / "readme.py"
    script.write_text(
        "\n".join(
            block.text
            for block in blocks((ROOT / "README.md").read_text())
            if block.language == "python"
        )
    )
    assert script.read_text(), "the README shows no Python"
    ran = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr


# The pages


@pytest.mark.parametrize("path", tracked("*.md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(path: Path) -> None:
    assert list(broken_links(path)) == []


def test_a_file_of_the_repository_that_a_page_names_exists() -> None:
    """The guides of the systems named `keyhouse/systems/NAME/schema.py`, of before they were
    packages."""
    named = [
        (page, name)
        for page in tracked("*.md")
        if not {"adr", "reports", "CHANGELOG.md"} & set(page.parts)
        for name in re.findall(
            r"`((?:keyhouse\w*|systems|examples|tests|tools)/[\w/.]+)`", page.read_text()
        )
        if "NAME" not in name
    ]
    assert len(named) > 20
    for page, name in named:
        places = (ROOT / name, ROOT / "src" / name, page.parent / "src" / name)
        assert any(each.exists() or each.with_suffix(".py").is_file() for each in places), (
            page,
            name,
        )


def test_the_architecture_page_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) < ARCHITECTURE_LINES_MAX


def test_the_architecture_page_names_every_part_of_the_package() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    parts = [
        path
        for path in (ROOT / "src" / "keyhouse").iterdir()
        if not path.name.startswith(("_", "."))
    ]
    names = [
        f"{path.name}/" if path.is_dir() else path.name
        for path in parts
        if path.suffix in ("", ".py")
    ]
    assert [name for name in sorted(names) if name not in page] == []


def test_every_error_is_documented() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    tree = ast.parse((ROOT / "src" / "keyhouse" / "errors.py").read_text())
    errors = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name in errors if not re.search(rf"\b{name}\b", page)] == []


def test_every_command_that_a_text_names_exists() -> None:
    """The error of a remote store named `keyhouse forget`, which is not a command."""
    found = {
        (str(path.relative_to(ROOT)), command)
        for folder, suffix in (
            ("src", ".py"),
            ("systems", ".py"),
            ("systems", ".md"),
            ("docs", ".md"),
        )
        for path in sorted((ROOT / folder).rglob(f"*{suffix}"))
        for command in re.findall(r"`keyhouse ([a-z][a-z-]*)", path.read_text())
        if command not in COMMANDS
    }
    assert found == set()


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text()
    assert [
        path.name for path in sorted(folder.glob("0*.md")) if f"({path.name})" not in index
    ] == []


def test_the_index_of_decisions_lists_the_missing_numbers() -> None:
    folder = ROOT / "docs" / "adr"
    [listed] = re.findall(
        r"The missing ones \(([^)]+)\)", (folder / "README.md").read_text().replace("\n", " ")
    )
    missing: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.partition(" to ")
        missing.update(range(int(first), int(last or first) + 1))
    numbers = {int(path.name[:4]) for path in folder.glob("0*.md")}
    assert missing == set(range(1, max(numbers) + 1)) - numbers


def test_every_release_of_the_changelog_has_the_four_sections_in_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in text
    for release in re.split(r"^## \[", text, flags=re.MULTILINE)[1:]:
        headings = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert headings == [
            each for each in ("Added", "Changed", "Fixed", "Security") if each in headings
        ]


@pytest.mark.parametrize(
    "module",
    [
        "engines/commit_queue.py",
        "engines/jetstream/feed.py",
        "engines/jetstream/mirror.py",
        "scheduling/eager_task.py",
    ],
)
def test_the_head_of_a_hard_module_has_the_theory_and_a_table_of_states(module: str) -> None:
    source = (ROOT / "src" / "keyhouse" / module).read_text()
    head = ast.get_docstring(ast.parse(source)) or ""
    theory = head.partition("Theory of operation")[2]
    assert re.match(r"\.|\n[-=]+\n", theory)
    assert re.search(r"^[ |]*state\s", theory, re.MULTILINE)


# The project


def test_make_help_names_every_target() -> None:
    targets = make_targets((ROOT / "Makefile").read_text())
    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    assert targets == set(re.findall(r"^ +make (\S+) +\S", shown, re.MULTILINE))


def test_no_file_contains_a_machine_path() -> None:
    found = {}
    for path in tracked():
        try:
            lines = machine_paths(path.read_text())
        except UnicodeDecodeError:
            continue
        if lines:
            found[str(path.relative_to(ROOT))] = lines
    assert found == {}


LOCKS = ("requirements.lock", "requirements-serve.lock", "requirements-bench.lock")


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_has_hashes_and_no_urls(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not re.search(r"://|^-|@ ", text, re.MULTILINE)
    for pin in re.split(r"\n(?=[a-z0-9])", text)[1:]:
        assert re.match(r"[\w.\-]+(\[[\w,\-]+\])?==[^\n]+\\\n +--hash=sha256:", pin), pin


def pins(name: str) -> dict[str, str]:
    found = re.findall(
        r"^([\w.\-]+)(?:\[[\w,\-]+\])?==(\S+)", (ROOT / name).read_text(), re.MULTILINE
    )
    return dict(found)


def test_make_serve_runs_with_the_versions_that_the_tests_run_with() -> None:
    """`make demo` installed 171 packages, a gigabyte, before its first line."""
    served, tested = pins("requirements-serve.lock"), pins("requirements.lock")
    assert served.items() <= tested.items()
    assert len(served) < len(tested) / 3
    makefile = (ROOT / "Makefile").read_text()
    for target in ("serve", "demo"):
        assert re.search(rf"^{target}: \.venv-serve/installed ", makefile, re.MULTILINE)


# Each check can fail.


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, with `code`\n```\n# not a heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#a-heading-with-code) [c](https://example.org)"
        " `[d](none.md)` [e](#here)\n# Here\n"
        "[f](gone.md) [g](there.md#not-a-heading) [h](#gone)\n```\n[i](none.md)\n```\n"
    )
    assert [sentence.split(" links to ")[1].split(",")[0] for sentence in broken_links(page)] == [
        "gone.md",
        "there.md#not-a-heading",
        "#gone",
    ]


def test_a_machine_path_is_found() -> None:
    planted = ["/" + "work/main", "/" + "root/x", "/" + "home/ann/x", "/" + "opt/pypi/x"]
    assert (
        machine_paths("\n".join([*planted, "docs/adr/x", "/usr/bin/env", "https://example.org/a"]))
        == planted
    )


def test_blocks_have_their_language() -> None:
    assert blocks("a\n```sh\nmake test\n```\nb\n```python\nx = 1\n```\n") == [
        Block("sh", "make test\n"),
        Block("python", "x = 1\n"),
    ]
