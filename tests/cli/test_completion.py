"""Bash completion of keys with `:`, which bash treats as the end of a word."""

from pathlib import Path

import pytest

from keyhouse.cli.completion import rejoin
from tests.support.program import run

BOARD = "keyhouse.demo.clips:BOARD"


@pytest.mark.parametrize(
    ("typed", "current", "whole", "known"),
    [
        ("get m : B idx : clip : ta", 8, ["get", "m:B", "idx:clip:ta"], "idx:clip:"),
        ("get rosey idx :", 3, ["get", "rosey", "idx:"], "idx:"),
        ("get rosey", 2, ["get", "rosey"], ""),
        (
            "list rosey --store = sqlite : a",
            6,
            ["list", "rosey", "--store=sqlite:a"],
            "--store=sqlite:",
        ),
        ("get a :: b", 3, ["get", "a::b"], "a::"),
        ("get m:B idx:clip", 2, ["get", "m:B", "idx:clip"], ""),
    ],
)
def test_words_split_by_bash_are_joined(
    typed: str, current: int, whole: list[str], known: str
) -> None:
    words, at, before = rejoin(typed.split(), current)
    assert (words, before) == (whole, known)
    assert at == (len(whole) if current == len(typed.split()) else len(whole) - 1)


def test_completion_of_a_key_starts_after_its_last_colon(tmp_path: Path) -> None:
    store = {"KEYHOUSE_STORE": "sqlite:clips.db", "KEYHOUSE_SPACE": "channel-7"}
    clip = '{"title": "What a goal!", "second": 754, "viewer": "Ada", "tags": ["Goal", "replay"]}'
    run("put", BOARD, "clip:goal", clip, cwd=tmp_path, environment=store)
    asked = {
        "_KEYHOUSE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"keyhouse get {BOARD.replace(':', ' : ')} idx : clip : ta",
        "COMP_CWORD": "9",
    }
    offered = run(cwd=tmp_path, environment=store | asked, code=None).stdout
    assert offered.splitlines() == ["tag:goal:goal", "tag:replay:goal"]
