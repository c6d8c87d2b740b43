"""The operator's view over HTTP: access, contents, and that it is read-only."""

import asyncio
import json
import re
from pathlib import Path

import apsw
import httpx
import pytest
from structlog.testing import capture_logs

from keyhouse.engine import Batch, Put
from tests.docs.pages import DOCS, code, table
from tests.systems.rosey.support.operator_view import SECRET, Office, in_office, operator

LOOKS = (
    "/plugins",
    "/plugins/trivia",
    "/plugins/trivia/keys",
    "/plugins/trivia/value?key=theme",
    "/figures",
)


# Access


def test_the_view_requires_an_operators_token(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value="secret-of-a-user")
        good = operator(office.clock)
        others = {
            "": 401,
            "x": 401,
            good[:-3] + "AAA": 401,
            operator(office.clock, seconds=1): 401,
            operator(
                office.clock, scopes=None
            ): 403,  # the scopes of a token that names none are not an operator's
            operator(office.clock, scopes=["read", "write"]): 403,
            operator(office.clock, scopes=["operators"]): 403,
        }
        office.clock.advance(seconds=2)
        async with httpx.AsyncClient(base_url=f"{office.url}/rosey") as client:
            for path in LOOKS:
                for bearer, status in others.items():
                    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
                    answer = await client.get(path, headers=headers)
                    assert (answer.status_code, "secret-of-a-user" in answer.text) == (
                        status,
                        False,
                    ), (path, bearer)
                answer = await client.get(path, headers={"Authorization": f"Bearer {good}"})
                assert answer.status_code == 200, (path, answer.text)
                assert (await client.post(path)).status_code == 405, (
                    "there is nothing here but looking"
                )

    in_office(tmp_path, story)


def test_a_secret_is_created_in_the_data_folder_per_system(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        made = (tmp_path / "rosey-jwt.secret").read_text().strip()
        assert re.fullmatch("[0-9a-f]{64}", made)
        for secret, status in ((made, 200), (SECRET, 401)):
            bearer = operator(office.clock, secret)
            answer = await office.http.get(
                "/plugins", headers={"Authorization": f"Bearer {bearer}"}
            )
            assert answer.status_code == status

    in_office(tmp_path, story, jwt_secret=None)


def test_reading_a_value_is_logged_without_the_value(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value="secret-of-a-user")
        with capture_logs() as logs:
            await office.look("/plugins/trivia/value", key="theme")
        [line] = [line for line in logs if line["event"] == "operator read a value"]
        assert (line["operator"], line["plugin"], line["key"]) == ("ann", "trivia", "theme")
        assert "secret-of-a-user" not in json.dumps(logs)

    in_office(tmp_path, story)


# Contents


def test_plugins_are_listed_with_usage_and_requests(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        assert await office.look("/plugins") == {
            "plugins": [],
            "truncated": False,
            "counted_at": None,
        }
        for name in ("trivia", "quote-db", "dice"):
            await office.ask(f"{name}.set", key="ab", value="cd")
        await office.ask("trivia.set", key="", value=1)
        assert (await office.look("/plugins"))["plugins"][0]["keys"] is None, "not counted yet"
        await office.count()
        await office.ask("late.set", key="a", value=1)
        first = await office.look("/plugins", limit=2)
        assert [(line["plugin"], line["keys"]) for line in first["plugins"]] == [
            ("dice", 1),
            ("late", None),
        ]
        assert (first["truncated"], first["cursor"]) == (True, "late")
        rest = await office.look("/plugins", limit=2, cursor="late")
        assert rest["plugins"] == [
            {"plugin": "quote-db", "keys": 1, "bytes": 6, "operations": 1, "errors": 0},
            {"plugin": "trivia", "keys": 1, "bytes": 6, "operations": 1, "errors": 1},
        ]
        assert (rest["truncated"], "cursor" in rest) == (False, False)
        assert rest["counted_at"] == "2026-01-01T00:00:00.000Z"

    in_office(tmp_path, story)


def test_one_plugin_is_shown_with_quota_rate_and_operations(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for number in range(3):
            await office.ask("trivia.set", key=f"k{number}", value=number)
        assert (await office.ask("trivia.set", key="k3", value=1))["error_code"] == "QUOTA_EXCEEDED"
        shown = await office.look("/plugins/trivia")
        assert (shown["keys"], shown["bytes"]) == (3, 9), "exact, because the quota is"
        assert shown["quota"] == {"keys": 3, "bytes": None}
        assert shown["rate"] == {"per_second": 2.0, "burst": 10, "left": 6}
        assert shown["errors"] == {"QUOTA_EXCEEDED": 1}
        assert shown["operations"]["set"]["count"] == 3
        assert 0 < shown["operations"]["set"]["mean_ms"] < 60_000
        office.clock.advance(seconds=1)
        assert (await office.look("/plugins/trivia"))["rate"]["left"] == 8
        assert (await office.look("/plugins/nobody", 404))["code"] == "NOT_FOUND"

    in_office(tmp_path, story, quota_keys=3, rate_per_second=2, rate_burst=10)


def test_a_plugin_can_be_counted_now(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="ab", value="cd", ttl=60)
        assert (await office.look("/plugins/trivia"))["keys"] is None
        assert (await office.look("/plugins/trivia", count="now"))["bytes"] == 6
        office.clock.advance(seconds=60)
        assert (await office.look("/plugins/trivia", count="now"))["keys"] == 0

    in_office(tmp_path, story)


def test_keys_are_paged_with_or_without_details(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for number in range(5):
            await office.ask("trivia.set", key=f"g:{number}", value="x" * number)
        await office.ask("trivia.set", key="session", value=1, ttl=60)
        page = await office.look("/plugins/trivia/keys", prefix="g:", limit=3)
        assert [line["key"] for line in page["keys"]] == ["g:0", "g:1", "g:2"]
        assert page["keys"][2] == {"key": "g:2", "bytes": 4, "revision": 3, "expires_at": None}
        rest = await office.look(
            "/plugins/trivia/keys", prefix="g:", limit=3, cursor=page["cursor"], fields="keys"
        )
        assert rest == {"keys": [{"key": "g:3"}, {"key": "g:4"}], "truncated": False}
        [session] = (await office.look("/plugins/trivia/keys", prefix="s"))["keys"]
        assert session["expires_at"] == "2026-01-01T00:01:00.000Z"
        office.clock.advance(seconds=60)
        assert (await office.look("/plugins/trivia/keys", prefix="s"))["keys"] == [], (
            "expired is invisible"
        )
        assert (await office.look("/plugins/trivia/keys", 400, cursor="made-up"))[
            "code"
        ] == "VALIDATION_ERROR"

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
            shown = await office.look("/plugins/trivia/value", key=key)
            assert (shown["key"], shown["value"]) == (key, {"key": key, "big": 2**70, "f": 1.0})
        answer = await office.http.get("/plugins/trivia/value", params={"key": "a b"})
        assert '"big":1180591620717411303424,"f":1.0}' in answer.text
        assert answer.headers["cache-control"] == "no-store"
        await office.ask("trivia.set", key="none", value=None, ttl=60)
        assert await office.look("/plugins/trivia/value", key="none") == {
            "key": "none",
            "value": None,
            "bytes": 4,
            "revision": 13,
            "expires_at": "2026-01-01T00:01:00.000Z",
        }
        office.clock.advance(seconds=60)
        assert (await office.look("/plugins/trivia/value", 404, key="none"))["code"] == "NOT_FOUND"
        assert (await office.look("/plugins/trivia/value", 400))["code"] == "VALIDATION_ERROR"

    in_office(tmp_path, story)


def test_an_unreadable_row_is_shown_as_text(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value=1)
        await office.engine.commit("trivia", Batch(puts=(Put("bad", b"{not json"),)))
        shown = await office.look("/plugins/trivia/value", key="bad")
        assert (shown["value"], shown["unreadable"]) == (None, "{not json")
        assert len((await office.look("/plugins/trivia/keys"))["keys"]) == 2

    in_office(tmp_path, story)


@pytest.mark.parametrize("name", ["Trivia", "a.b", "a%20b", "trivia%0A", "x" * 101, "..%2Ftrivia"])
def test_an_invalid_plugin_name_is_404(tmp_path: Path, name: str) -> None:
    async def story(office: Office) -> None:
        for path in (f"/plugins/{name}", f"/plugins/{name}/keys", f"/plugins/{name}/value?key=a"):
            assert (await office.http.get(path)).status_code == 404

    in_office(tmp_path, story)


def test_the_figures_equal_the_metrics(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for number in range(3):
            await office.ask("trivia.set", key=f"k{number}", value=number)
        await office.ask("dice.set", key="k", value=1)
        await office.ask("dice.get", key="k")
        await office.ask("dice.get")
        shown = await office.look("/figures")
        assert {name: work["count"] for name, work in shown["operations"].items()} == {
            "set": 4,
            "get": 1,
        }
        assert shown["errors"] == {"MISSING_FIELD": 1}
        assert (shown["watches"], shown["cleanups"], shown["cleaned"]) == (0, 0, 0)
        assert shown["quota"] == {"keys": None, "bytes": None}
        assert shown["rate_per_second"] == 5_000

    in_office(tmp_path, story)


def test_the_view_is_read_only(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await office.ask("trivia.set", key="theme", value="dark", ttl=60)
        await asyncio.sleep(0)
        database = apsw.Connection(str(tmp_path / "rosey.db"), flags=apsw.SQLITE_OPEN_READONLY)
        before = database.execute("SELECT * FROM plugin_kv_storage").fetchall()
        for path in LOOKS:
            assert (await office.http.get(path)).status_code == 200
        assert database.execute("SELECT * FROM plugin_kv_storage").fetchall() == before
        assert (await office.ask("trivia.get", key="theme", revision=True))["revision"] == 1

    in_office(tmp_path, story)


# The page


def test_the_page_is_that_of_the_studio(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        async with httpx.AsyncClient(base_url=office.url) as client:
            page = await client.get("/rosey/")
            assert (page.status_code, page.headers["location"]) == (303, "/studio/rosey/")

    in_office(tmp_path, story)


def test_every_route_of_the_view_is_in_the_guide(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        listed = {
            f"{route.method} /rosey{route.path}" for route in office.part.routes if route.listed
        }
        documented = {
            code(row[0]).partition("?")[0]
            for row in table((DOCS / "systems" / "rosey.md").read_text(), "## The operator's view")
        }
        assert documented == listed

    in_office(tmp_path, story)
