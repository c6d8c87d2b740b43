"""`python -m tools.code_lines BEFORE [AFTER]`: code lines by package and system, a Markdown table.

Both are revisions; AFTER is HEAD if it is left out. A code line has a token: blank lines, comments
and docstrings do not count. Tests, tools, examples and benchmarks do not either.
"""

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

_NO_CODE: Final = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
ROOT: Final = "root"


class Size(NamedTuple):
    files: Counter[str]
    lines: Counter[str]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.code_lines")
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    revisions = parser.parse_args(arguments)
    before, after = (size_of(sources(each)) for each in (revisions.before, revisions.after))
    print("\n".join(table(before, after)))


def sources(revision: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and text of each module of the library and of the systems."""
    archive = subprocess.run(["git", "archive", revision], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        for member in files:
            is_source = member.name.startswith("src/") or "/src/" in member.name
            if is_source and member.name.endswith(".py") and "examples" not in member.name:
                content = files.extractfile(member)
                assert content is not None
                yield member.name, content.read()


def size_of(modules: Iterator[tuple[str, bytes]]) -> Size:
    size = Size(Counter(), Counter())
    for path, text in modules:
        part = part_of(path)
        size.files[part] += 1
        size.lines[part] += code_lines(text)
    return size


def part_of(path: str) -> str:
    """Return the package of a module, or the system: `systems/rosey`."""
    source, _, inside = path.rpartition("src/")
    if source:
        return source.strip("/")
    parts = PurePosixPath(inside).parts[1:-1]
    if parts[:1] == ("systems",):  # before they were packages
        return "/".join(parts[:2])
    return parts[0] if parts else ROOT


def code_lines(text: bytes) -> int:
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = {
        line
        for token in tokenize.tokenize(io.BytesIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)


def table(before: Size, after: Size) -> Iterator[str]:
    """Yield the lines of the table: packages of the library, then systems, each with their sum."""
    yield "| part | lines before | now | files before | now |"
    yield "|---|---:|---:|---:|---:|"
    parts = sorted({*before.files, *after.files})
    systems = [part for part in parts if part.startswith("systems")]
    library = [part for part in parts if part not in systems]
    for title, group in (("the library", library), ("the systems", systems)):
        for part in group:
            yield _row(f"`{part}`", [part], before, after)
        yield _row(f"**{title}**", group, before, after)
    yield _row("**together**", parts, before, after)


def _row(title: str, parts: list[str], before: Size, after: Size) -> str:
    counts = (before.lines, after.lines, before.files, after.files)
    numbers = [sum(count[part] for part in parts) for count in counts]
    return (
        f"| {title} | " + " | ".join(f"{number:,}" if number else "" for number in numbers) + " |"
    )


if __name__ == "__main__":
    main()
