"""Which route a path leads to. The table is one regular expression: these are the ways in which one could go astray."""

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
def test_text_goes_before_fields_and_a_slash_in_an_escape_is_no_new_segment(
    path: str, route: str, values: list[str]
) -> None:
    assert found(table(*PATHS), path) == (route, values)
    assert found(table(*reversed(PATHS)), path) == (route, values), (
        "the order of the routes does not matter"
    )


@pytest.mark.parametrize(
    "path", ["", "a", "*", "//", "/a/", "/a//b", "/v.json", "/a/b/c/", "/a/b/c/d/e", "/a%2Fb", "/A"]
)
def test_what_is_nowhere_is_found_nowhere(path: str) -> None:
    assert found(table(*PATHS[1:]), path) is None


def test_an_escape_that_is_no_text_is_refused_and_can_not_stand_for_a_slash() -> None:
    """Inside, a slash in a segment is written as a lone surrogate: nobody must be able to send one."""
    for spelled in (b"/a/%ed%b0%af", b"/a/%ff", b"/a/\xff"):
        with pytest.raises(UsageError):
            table(*PATHS).find(spelled)


def test_a_route_that_is_added_later_is_found_and_one_that_is_there_is_refused() -> None:
    at = table("/a/{x}")
    assert found(at, "/b") is None
    at.add("GET", "/b", "/b")
    assert found(at, "/b") == ("/b", [])
    with pytest.raises(DeclarationError):
        at.add("GET", "/a/{y}", "again")


def test_a_long_path_takes_no_longer_than_its_length() -> None:
    """Fields that could each take any part of a path would be tried in every way there is."""
    at = table(
        *(
            "/".join(["", *each])
            for each in itertools.product(("{a}", "x{a}y", "{a}:batch"), repeat=4)
        )
    )
    assert found(at, "/" + "x" * 20_000 + ":y" * 20_000) is None
    assert found(at, "/" + "/".join(["xy:batch"] * 5)) is None
