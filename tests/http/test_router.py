"""Routing. The table is one regular expression; these are the ways in which it could fail."""

import itertools

import pytest

from keyhouse.errors import DeclarationError, UsageError
from keyhouse.http.router import Router


def table(*paths: str) -> Router[str]:
    made: Router[str] = Router()
    for path in paths:
        made.add("GET", path, path)
    return made


def found(at: Router[str], path: str) -> tuple[str, list[str]] | None:
    hit = at.find(path.encode())
    return None if hit is None else (hit[0]["GET"], list(hit[1]))


PATHS = (
    "/",
    "/a",
    "/a/b",
    "/a/{x}",
    "/a/{x}:batch",
    "/a/{x}/b",
    "/a/{x}/{y}",
    "/a/b/c/{z}",
    "/v{n}.json",
    "/{any}/end",
)


@pytest.mark.parametrize(
    ("path", "route", "values"),
    [
        ("/", "/", []),
        ("/a", "/a", []),
        ("/a/b", "/a/b", []),
        ("/a/bb", "/a/{x}", ["bb"]),
        ("/a/b:batch", "/a/{x}:batch", ["b"]),
        ("/a/:batch", "/a/{x}", [":batch"]),
        ("/a/x:batch:batch", "/a/{x}:batch", ["x:batch"]),
        ("/a/b/b", "/a/{x}/b", ["b"]),
        ("/a/b/c", "/a/{x}/{y}", ["b", "c"]),
        ("/a/b/c/d", "/a/b/c/{z}", ["d"]),
        ("/v1.json", "/v{n}.json", ["1"]),
        ("/a/end", "/a/{x}", ["end"]),
        ("/b/end", "/{any}/end", ["b"]),
        ("/a/c%2Fd/b", "/a/{x}/b", ["c/d"]),
        ("/a/%62", "/a/b", []),
        ("/a/b%3Abatch", "/a/{x}:batch", ["b"]),
        ("/a/%25/%2f", "/a/{x}/{y}", ["%", "/"]),
        ("/a/%0A/%00", "/a/{x}/{y}", ["\n", "\0"]),
        ("/a/ä", "/a/{x}", ["ä"]),
    ],
)
def test_literals_win_over_fields_and_an_escaped_slash_is_not_a_separator(
    path: str, route: str, values: list[str]
) -> None:
    assert found(table(*PATHS), path) == (route, values)
    assert found(table(*reversed(PATHS)), path) == (route, values), (
        "the order of the routes does not matter"
    )


@pytest.mark.parametrize(
    "path", ["", "a", "*", "//", "/a/", "/a//b", "/v.json", "/a/b/c/", "/a/b/c/d/e", "/a%2Fb", "/A"]
)
def test_an_unknown_path_is_not_found(path: str) -> None:
    assert found(table(*PATHS[1:]), path) is None


def test_an_invalid_escape_is_rejected_and_never_becomes_a_slash() -> None:
    """Internally an escaped slash is a lone surrogate, which no client may send."""
    for spelled in (b"/a/%ed%b0%af", b"/a/%ff", b"/a/\xff"):
        with pytest.raises(UsageError):
            table(*PATHS).find(spelled)


def test_a_later_route_is_found_and_a_duplicate_rejected() -> None:
    at = table("/a/{x}")
    assert found(at, "/b") is None
    at.add("GET", "/b", "/b")
    assert found(at, "/b") == ("/b", [])
    with pytest.raises(DeclarationError):
        at.add("GET", "/a/{y}", "again")


def test_matching_a_long_path_takes_linear_time() -> None:
    """Fields that match any part of a path would backtrack."""
    at = table(
        *(
            "/".join(["", *each])
            for each in itertools.product(("{a}", "x{a}y", "{a}:batch"), repeat=4)
        )
    )
    assert found(at, "/" + "x" * 20_000 + ":y" * 20_000) is None
    assert found(at, "/" + "/".join(["xy:batch"] * 5)) is None
