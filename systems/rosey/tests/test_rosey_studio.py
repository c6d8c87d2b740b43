"""Plugin storage in the Studio, for people and for programs with an operator's token: access,
contents, and that looking changes nothing."""

import json
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from structlog.testing import capture_logs

from keyhouse.engine import Batch, Put
from systems.rosey.tests.support.studio_over_rosey import Office, in_office, operator
from tests.docs.pages import code, table

LOOKS = (
    "/rosey/index.json",
    "/rosey/trivia/index.json",
    "/rosey/trivia/value.json",
    "/rosey/trivia/tree.json",
    "/rosey/trivia/key.json?k=theme",
    "/slow.json",
)


# Access


def test_the_plugins_are_shown_to_operators_only(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value="secret-of-a-user")
        good = operator(office.clock)
        others = {
            "": 401,
            "x": 401,
            good[:-3] + "AAA": 401,
            operator(office.clock, seconds=1): 401,
            operator(office.clock, "read"): 403,
            operator(office.clock, "operator"): 403,
        }
        office.clock.advance(seconds=2)
        async with httpx.AsyncClient(base_url=f"{office.url}/studio", timeout=60) as client:
            for path in LOOKS:
                for bearer, status in others.items():
                    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
                    answer = await client.get(path, headers=headers)
                    shown = "secret-of-a-user" in answer.text
                    assert (answer.status_code, shown) == (status, False), (path, bearer)
                answer = await client.get(path, headers={"Authorization": f"Bearer {good}"})
                assert answer.status_code == 200, (path, answer.text)

    in_office(tmp_path, story)


def test_reading_a_value_is_logged_without_the_value(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value="secret-of-a-user")
        with capture_logs() as logs:
            await office.look("/rosey/trivia/key.json", k="theme")
        [line] = [line for line in logs if line["event"] == "operator read a value"]
        assert (line["operator"], line["space"], line["key"]) == ("ann", "trivia", "theme")
        assert "secret-of-a-user" not in json.dumps(logs)

    in_office(tmp_path, story)


def test_the_page_of_plugin_storage_leads_to_the_studio(tmp_path: Path) -> None:
    """It was a redirect, so that people without an operator's token saw only a login."""

    async def story(office: Office) -> None:
        async with httpx.AsyncClient(base_url=office.url, timeout=60) as client:
            page = await client.get("/rosey/", headers={"Accept": "text/html"})
            assert page.status_code == 200
            assert 'href="../studio/rosey/"' in page.text

    in_office(tmp_path, story)


# Contents


def test_plugins_are_listed_with_usage_and_requests(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        assert (await office.look("/rosey/index.json"))["spaces"] == []
        for name in ("trivia", "quote-db"):
            await office.ask(f"{name}.set", key="ab", value="cd")
        await office.ask("trivia.set", key="", value=1)
        listed = (await office.look("/rosey/index.json"))["spaces"]
        names = ("name", "size", "operations", "errors")
        size = {"rows": 1, "bytes": 6, "is_exact": True}
        assert [{name: line[name] for name in names} for line in listed] == [
            {"name": "quote-db", "size": size, "operations": 1, "errors": 0},
            {"name": "trivia", "size": size, "operations": 1, "errors": 1},
        ]
        page = await office.http.get("/rosey/")
        assert '<th scope="col" class="number">errors</th>' in page.text

    in_office(tmp_path, story)


def test_one_plugin_is_shown_with_quota_rate_and_operations(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for number in range(3):
            await office.ask("trivia.set", key=f"k{number}", value=number)
        assert (await office.ask("trivia.set", key="k3", value=1))["error_code"] == "QUOTA_EXCEEDED"
        shown = await office.look("/rosey/trivia/index.json")
        assert shown["size"] == {"rows": 3, "bytes": 9, "is_exact": True}
        use = shown["use"]
        assert (use["quota_keys"], use["quota_bytes"]) == (3, None)
        assert use["rate"] == {"per_second": 2.0, "burst": 10, "left": 6}
        assert use["errors"] == {"QUOTA_EXCEEDED": 1}
        [operation] = use["operations"]
        assert (operation["call"], operation["count"]) == ("set", 3)
        assert 0 < operation["mean_ms"] < 60_000
        office.clock.advance(seconds=1)
        assert (await office.look("/rosey/trivia/index.json"))["use"]["rate"]["left"] == 8

    in_office(tmp_path, story, quota_keys=3, rate_per_second=2, rate_burst=10)


def test_keys_are_listed_by_prefix_and_expired_ones_are_invisible(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for number in range(3):
            await office.ask("trivia.set", key=f"g:{number}", value="x" * number)
        await office.ask("trivia.set", key="session", value=1, ttl=60)
        page = await office.look("/rosey/trivia/value.json", q="key:g*")
        found = [(row["key"], row["revision"], row["expires"]) for row in page["rows"]]
        assert found == [("g:0", 1, None), ("g:1", 2, None), ("g:2", 3, None)]
        [session] = (await office.look("/rosey/trivia/value.json", q="key:s*"))["rows"]
        assert session["expires"] == office.clock.now() + 60_000
        office.clock.advance(seconds=60)
        assert (await office.look("/rosey/trivia/value.json", q="key:s*"))["rows"] == []

    in_office(tmp_path, story)


ODD_KEYS = (
    "..",
    "../x",
    "a/b",
    "a b",
    "%",
    "?x=1&y",
    "é\u202e",
    "<script>",
    "a\nb",
    "#",
    "+",
    "x" * 255,
)


def test_a_value_is_shown_as_stored_for_any_key(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for key in ODD_KEYS:
            await office.ask("trivia.set", key=key, value={"key": key, "big": 2**70, "f": 1.0})
            shown = await office.look("/rosey/trivia/key.json", k=key)
            value = {"key": key, "big": 2**70, "f": 1.0}
            assert (shown["key"], json.loads(shown["value"])) == (key, value)
            assert '"f": 1.0' in shown["value"]
        answer = await office.http.get("/rosey/trivia/key.json", params={"k": "a b"})
        assert "no-store" in answer.headers["cache-control"]
        await office.ask("trivia.set", key="none", value=None, ttl=60)
        shown = await office.look("/rosey/trivia/key.json", k="none")
        assert (shown["value"], shown["bytes"], shown["revision"]) == ("null", 4, 13)
        assert shown["expires"] == office.clock.now() + 60_000
        office.clock.advance(seconds=60)
        assert (await office.look("/rosey/trivia/key.json", k="none"))["exists"] is False

    in_office(tmp_path, story)


def test_an_unreadable_row_is_shown_as_text(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value=1)
        await office.engine.commit("trivia", Batch(puts=(Put("bad", b"{not json"),)))
        shown = await office.look("/rosey/trivia/key.json", k="bad")
        assert (shown["value"], shown["is_json"]) == ("{not json", False)
        page = await office.look("/rosey/trivia/value.json")
        assert (len(page["rows"]), page["unreadable"]) == (1, ["bad"])

    in_office(tmp_path, story)


@pytest.mark.parametrize("name", ["Trivia", "a.b", "a%20b", "trivia%0A", "x" * 101, "..%2Ftrivia"])
def test_an_invalid_plugin_name_is_404(tmp_path: Path, name: str) -> None:
    async def story(office: Office) -> None:
        for path in (f"/rosey/{name}/index.json", f"/rosey/{name}/key.json?k=a"):
            assert (await office.http.get(path)).status_code == 404

    in_office(tmp_path, story)


def test_the_figures_equal_the_metrics(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for number in range(3):
            await office.ask("trivia.set", key=f"k{number}", value=number)
        await office.ask("dice.set", key="k", value=1)
        await office.ask("dice.get", key="k")
        await office.ask("dice.get")
        shown = await office.look("/slow.json")
        counts = {each["call"]: each["count"] for each in shown["operations"]}
        assert counts == {"set": 4, "get": 1}
        assert shown["errors"] == [{"system": "rosey", "code": "MISSING_FIELD", "count": 1}]
        page = await office.http.get("/slow")
        assert "MISSING_FIELD" in page.text

    in_office(tmp_path, story)


def test_looking_changes_nothing(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value="dark", ttl=60)
        database = apsw.Connection(str(tmp_path / "rosey.db"), flags=apsw.SQLITE_OPEN_READONLY)
        before = database.execute("SELECT * FROM plugin_kv_storage").fetchall()
        for path in LOOKS:
            assert (await office.http.get(path)).status_code == 200
        assert database.execute("SELECT * FROM plugin_kv_storage").fetchall() == before
        assert (await office.ask("trivia.get", key="theme", revision=True))["revision"] == 1

    in_office(tmp_path, story)


def test_the_paths_of_the_guide_are_those_of_the_studio(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value="dark")
        guide = (Path(__file__).parents[1] / "README.md").read_text()
        paths = [code(row[0]) for row in table(guide, "## Looking at what plugins store")]
        examples = {"after": "a", "count": "all", "q": "key:th*", "cursor": "", "k": "theme"}
        for path, _, names in (each.partition("?") for each in paths):
            query: dict[str, Any] = {
                name: examples[name] for name in filter(None, names.split("&"))
            }
            await office.look(path.replace("{plugin}", "trivia"), **query)
        assert len(paths) == 5

    in_office(tmp_path, story)
