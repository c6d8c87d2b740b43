"""Checks that prose and names use the field's words: `python -m tests.project.vocabulary PATH...`.

Three rules, each with the replacement in its message:

- WORDS: banned words and phrases in docstrings, comments, string literals and Markdown.
- OPENINGS: a sentence of a docstring, comment or Markdown paragraph does not start with a
  relative clause ("What is stored ...", "Whoever reads ..."), unless it is a question.
- NAMES: banned words as parts of identifiers; the names of tests are also checked as sentences.

`docs/glossary.md` lists the terms to use. Code spans and code blocks in Markdown are skipped.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

WORDS: dict[str, str] = {
    r"whoever": "the caller, any client, callers that",
    r"anew": "again",
    r"begun": "started",
    r"mend(?:s|ed|ing)?": "repair, fix",
    r"heed(?:s|ed|ing)?": "respected, honoured",
    r"manieth": "nth",
    r"so too": "also",
    r"of ours": "our own, or name it",
    r"(?:is|are|was|were|be|been|being) told": "is reported, receives, logs, raises",
    r"told (?:of|apart)": "reported, distinguished",
    r"can(?:'t|not) be (?:that|so)": "is invalid",
    r"be called so": "invalid name",
    r"still to come": "in the future, newer than the newest",
    r"hereby|whereby|wherein|therein|thereof|whence|thence": "plain English",
    r"(?<!there )(?-i:is none)\b(?! of)": "is not one, is missing",
    r"(?:go|goes|going|went|gone) on(?! to\b)": "continue, resume",
    r"(?:let|lets|letting) go": "release",
    r"hung up on": "disconnected",
    r"see to it": "ensure",
    r"see(?:s|n)? to it": "ensure",
    r"houses?": "harness, store, fixture",
    r"errands?": "worker thread, job",
    r"patien(?:ce|tly)": "retry, backoff, timeout",
    r"cork(?:s|ed|ing)?": "write coalescing",
    r"census(?:es)?": "usage scan",
    r"couriers?": "publisher",
    r"poison(?:s|ed|ing)?": "hostile value, poisoned commit -> failing commit",
    r"faces?": "listener, API, protocol",
    r"strangers?": "unknown, foreign",
    r"farewell": "close",
    r"at its business": "running",
    r"laid over": "merged over, overrides",
    r"manner of": "kind of",
    r"nought|naught": "zero",
    r"an end like any other": "a normal shutdown",
    r"by and by": "eventually",
    r"now and then": "periodically, occasionally",
    r"in the way of": "blocks",
    r"gets? in the way": "conflicts",
    r"say(?:s|ing)? no": "rejects",
    r"said no": "rejected",
    r"say(?:s)? so": "reports it, states it",
    r"takes? nothing more": "stops accepting",
    r"takes? part": "participates",
    r"be it": "whether",
    r"as it were": "",
    r"ere long|ere": "before",
    r"as well as may be": "as well as possible",
    r"in doubt": "with an unknown outcome",
    r"who asks": "the caller, the client",
    r"of (?:its|their|our) own": "separate, its own X, another",
    r"by halves": "torn, partially",
    r"(?:gives?|given|giving) out": "returned, delivered, assigned",
    r"(?:takes?|taken|taking) for": "treated as, mistaken for",
    r"in good order": "cleanly",
    r"grave(?:st|r)?": "severe, minimum level",
    r"cures?": "fix, advice, hint",
    r"of theirs": "the attacker's, another program's",
    r"for ever": "forever",
    r"(?:has|have) still": "still has",
    r"(?<!there )(?:is|are|was|were) no (?!longer|more|such|other|default)[a-z]\w*": "is not a",
}
"""Banned word or phrase (a regular expression, matched as whole words) and its replacements."""

OPENINGS = re.compile(
    r"^(?:What|Whatever|Who|Whoever|Whom|Whose|Those|That which|The same|How|Whether|So too)\b"
)
"""Openings of a sentence that is not a question. Start with a verb or with the thing itself."""

SAFE_OPENINGS = re.compile(r"^(?:Whether or not|How to|What's new|Those are\b)")

NAMES: dict[str, str] = {
    "told": "reported, notified, logged_at",
    "begun": "started",
    "anew": "again",
    "whoever": "caller",
    "mend": "repair",
    "mended": "repaired",
    "errand": "worker_thread",
    "errands": "worker_thread",
    "patience": "retry, timeout",
    "patiently": "retry",
    "corked": "coalesced",
    "unsent": "write_buffer",
    "census": "usage_scan",
    "courier": "publisher",
    "farewell": "close_quietly",
    "housing": "spaces",
    "house": "harness",
    "houses": "harness",
    "strangers": "unknown_spaces",
    "poison": "hostile_values",
    "faced": "listener",
    "face": "listener",
    "faces": "listeners",
    "manieth": "nth",
    "nudge": "refresh_if_stale",
    "rehearse": "preflight",
    "earned": "added",
    "heir": "successor",
    "accompany": "spawn",
}
"""Banned part of an identifier (split at underscores and capitals) and its replacements."""

_WORDS = [
    (re.compile(rf"(?<![\w-])(?:{w})(?![\w-])", re.IGNORECASE), instead)
    for w, instead in WORDS.items()
]
_ANY_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(WORDS)})(?![\w-])", re.IGNORECASE)
_ANY_OPENING = re.compile(OPENINGS.pattern.removeprefix("^"))
_COMMENT_LINES = re.compile(r"\n\s*#[#: ]*")
_IDENTIFIERS = re.compile(r"[^\W\d]\w*")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SENTENCES = re.compile(r"(?<=[.!;])\s+|\n\s*\n|(?<=\?)\s+")


class Violation(NamedTuple):
    path: Path
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: write {self.instead}"


def check(path: Path) -> list[Violation]:
    """Return all violations in one Python or Markdown file."""
    text = path.read_text()
    found = check_python(text) if path.suffix == ".py" else check_markdown(text)
    return [Violation(path, line, what, instead) for line, what, instead in found]


def check_python(text: str) -> Iterator[tuple[int, str, str]]:
    if not is_suspect(text):
        return
    docstrings = {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    comment: list[str] = []
    comment_line = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if not comment:
                comment_line = token.start[0]
            comment.append(token.string.lstrip("#: "))
            continue
        if token.type == tokenize.NL and comment:
            continue
        if comment:
            yield from prose(" ".join(comment), comment_line)
            comment = []
        if token.type == tokenize.NAME:
            yield from name(token.string, token.start[0])
        elif token.type == tokenize.STRING:
            if token.start in docstrings:
                yield from prose(token.string.strip("rbf\"'"), token.start[0])
            else:
                yield from words(token.string, token.start[0])


def is_suspect(text: str) -> bool:
    """Return whether a source may have a violation: its tokens need not be read otherwise, which
    takes ten times as long."""
    joined = _COMMENT_LINES.sub(" ", text)
    names = {*_IDENTIFIERS.findall(text)}
    sentences = "\n".join(each.replace("_", " ") for each in names if each.startswith("test_"))
    return bool(
        _ANY_WORD.search(joined)
        or _ANY_OPENING.search(joined)
        or any(map(replacement, names))
        or _ANY_WORD.search(sentences)
    )


def check_markdown(text: str) -> Iterator[tuple[int, str, str]]:
    text = re.sub(r"^```.*?^```", _blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", text):
        if paragraph.strip():
            is_prose = not re.match(r"\s*(#|\||\d+\.|[-*]|>|\[|<)", paragraph)
            yield from prose(paragraph, line) if is_prose else words(paragraph, line)
        line += paragraph.count("\n")


def prose(text: str, line: int) -> Iterator[tuple[int, str, str]]:
    yield from words(text, line)
    at = 0
    for sentence in _SENTENCES.split(text):
        start = text.find(sentence, at)
        at = max(at, start)
        stripped = sentence.strip()
        if (
            OPENINGS.match(stripped)
            and not SAFE_OPENINGS.match(stripped)
            and not stripped.endswith("?")
        ):
            shown = " ".join(stripped.split()[:6])
            yield line + text.count("\n", 0, at), shown, "a verb or the thing itself first"


def words(text: str, line: int) -> Iterator[tuple[int, str, str]]:
    if not _ANY_WORD.search(text):
        return
    for pattern, instead in _WORDS:
        for match in pattern.finditer(text):
            yield line + text.count("\n", 0, match.start()), match[0], instead


def name(identifier: str, line: int) -> Iterator[tuple[int, str, str]]:
    if (instead := replacement(identifier)) is not None:
        yield line, identifier, instead
    elif identifier.startswith("test_"):
        yield from words(identifier.replace("_", " "), line)


@cache
def replacement(identifier: str) -> str | None:
    """Return the replacements of the first banned part of a name."""
    parts = _PARTS.findall(identifier)
    return next((NAMES[part.lower()] for part in parts if part.lower() in NAMES), None)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.suffix in (".py", ".md"))
        else:
            yield path


def main(arguments: list[str]) -> int:
    found = [violation for path in files([Path(a) for a in arguments]) for violation in check(path)]
    for violation in found:
        print(violation)
    print(f"{len(found)} violations")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
