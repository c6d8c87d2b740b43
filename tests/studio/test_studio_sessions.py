"""Signing in to the Studio, its sessions, and their lock."""

import asyncio
from pathlib import Path

import httpx

from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.studio.schema import SESSION, Session
from tests.studio.support.library import Library, library, run, token


def test_a_page_without_a_session_leads_to_the_login_and_back(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.client() as client:
            answer = await client.get("/studio/library/?after=a")
            assert answer.status_code == 303
            location = answer.headers["location"]
            assert location.startswith("/studio/login?next=%2Fstudio%2Flibrary%2F")
            assert "Operator" in (await client.get(location)).text
            form = {"token": token(), "next": "/studio/library/"}
            answer = await client.post("/studio/login", data=form)
            assert answer.headers["location"] == "/studio/library/"
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert "Path=/studio" in cookie
            assert "Secure" not in cookie
            assert "main" in (await client.get("/studio/library/")).text

    run(tmp_path, scenario)


def test_a_twin_without_a_session_is_401_and_takes_a_bearer_token(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.client() as client:
            assert (await client.get("/studio/index.json")).status_code == 401
            headers = {"Authorization": f"Bearer {token('studio:read')}"}
            answer = await client.get("/studio/index.json", headers=headers)
            assert answer.status_code == 200
            [system] = answer.json()["systems"]
            assert system["name"] == "library"
            assert system["is_durable"] is False
            assert answer.headers["cache-control"] == "private, no-store"

    run(tmp_path, scenario)


def test_a_client_that_takes_html_alone_signs_in(tmp_path: Path) -> None:
    """The form was 406: its route did not say that it returns a page."""

    async def scenario(served: Library) -> None:
        async with served.client() as client:
            client.headers["accept"] = "text/html"
            wrong = await client.post("/studio/login", data={"token": "wrong"})
            assert (wrong.status_code, wrong.headers["content-type"][:9]) == (401, "text/html")
            answer = await client.post("/studio/login", data={"token": token()})
            assert answer.status_code == 303

    run(tmp_path, scenario)


def test_a_link_signs_in_once_in_whatever_process_and_its_session_is_known_in_all(
    tmp_path: Path,
) -> None:
    """It was in the memory of the process that printed it: behind a proxy it failed at random."""

    async def main() -> None:
        engines = [SqliteEngine.open(tmp_path / "studio.db") for _ in range(2)]
        async with (
            library(tmp_path, own=engines[0]) as one,
            library(tmp_path, own=engines[1]) as other,
            one.client() as first,
            other.client() as second,
        ):
            form = {"token": await one.studio.sessions.new_link()}
            answers = await asyncio.gather(
                *(client.post("/studio/login", data=form) for client in (first, second) * 4)
            )
            assert sorted(each.status_code for each in answers) == [303] + [401] * 7
            first.cookies.update(second.cookies)
            second.cookies.update(first.cookies)
            for client in (first, second):
                assert (await client.get("/studio/")).status_code == 200

    asyncio.run(main())


def test_wrong_tokens_are_slowed_and_never_keep_out_a_right_one(tmp_path: Path) -> None:
    """Five wrong tokens, from any address, kept every operator out, and the one-time link too: all
    attempts counted as those of one account."""

    async def scenario(served: Library) -> None:
        code = await served.studio.sessions.new_link()
        async with served.client() as client:
            answers = [
                await client.post("/studio/login", data={"token": f"x{n}"}) for n in range(30)
            ]
            statuses = [answer.status_code for answer in answers]
            assert statuses == [401] * 20 + [429] * 10
            assert int(answers[-1].headers["retry-after"]) >= 1
            assert not client.cookies
            for right in (token(), code):
                answer = await client.post("/studio/login", data={"token": right})
                assert answer.status_code == 303

    run(tmp_path, scenario)


def test_the_login_leads_to_no_other_place(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        for place in (
            "https://evil.example/",
            "//evil.example",
            "/other",
            "/studio/\\evil",
            "/studio/../evil",
            "/studio/library/../../evil",
            "/studio/%2e%2E/evil",
            "/studio/.%2e?next=/studio/",
            "/studio/./library/",
        ):
            async with served.client() as client:
                form = {"token": token(), "next": place}
                answer = await client.post("/studio/login", data=form)
                assert answer.headers["location"] == "/studio/"

    run(tmp_path, scenario)


def test_a_one_time_link_signs_in_once(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        code = await served.studio.sessions.new_link()
        async with served.client() as client:
            page = await client.get("/studio/login", params={"link": code})
            assert "signs you in once" in page.text
            answer = await client.post("/studio/login", data={"token": code})
            assert answer.status_code == 303
        async with served.client() as client:
            answer = await client.post("/studio/login", data={"token": code})
            assert answer.status_code == 401

    run(tmp_path, scenario)


def test_a_session_ends_by_sign_out_and_by_revocation(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as ann, served.signed_in("studio:read") as bob:
            sessions = (await ann.get("/studio/sessions.json")).json()["sessions"]
            assert "secret" not in str(sessions)
            [other] = [each["id"] for each in sessions if not each["is_own"]]
            assert (await bob.get("/studio/index.json")).status_code == 200
            await ann.post("/studio/sessions", data={"id": other})
            assert (await bob.get("/studio/index.json")).status_code == 401
            kept = dict(ann.cookies)
            await ann.post("/studio/logout")
            async with served.client(cookies=kept) as thief:
                assert (await thief.get("/studio/index.json")).status_code == 401

    run(tmp_path, scenario)


def test_edits_are_locked_until_unlocked_and_a_viewer_cannot_unlock(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as ann:
            assert "Edits locked" in (await ann.get("/studio/library/")).text
            await ann.post("/studio/lock", data={"unlocked": "on"})
            page = (await ann.get("/studio/library/")).text
            assert "Changes are written to <strong>library</strong> on" in page
            lines = (await ann.get("/studio/journal.json")).json()["lines"]
            assert [line["action"] for line in lines] == ["unlock", "sign in"]
        async with served.signed_in("studio:read") as viewer:
            answer: httpx.Response = await viewer.post("/studio/lock", data={"unlocked": "on"})
            assert answer.status_code == 403
            assert (await viewer.get("/studio/sessions")).status_code == 403

    run(tmp_path, scenario)


def test_spaces_are_listed_with_exact_counts(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            page = (await client.get("/studio/library/index.json")).json()
            [space] = page["spaces"]
            assert space["name"] == "main"
            assert space["size"] == {"rows": 14, "bytes": space["size"]["bytes"], "is_exact": True}
            page = (await client.get("/studio/library/main/index.json")).json()
            assert [each["name"] for each in page["records"]] == ["book", "shelf"]
            assert (await client.get("/studio/library/schema")).status_code == 200
            missing = await client.get("/studio/nothing/")
            assert missing.status_code == 404
            assert "No such system is served" in missing.text
            assert "<code>library</code>" in missing.text, "the names that are known"

    run(tmp_path, scenario)


def test_the_page_at_the_root_leads_to_the_studio(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path) as served, served.client() as client:
            page = await client.get("/")
            assert '<a href="studio/">Open the page</a>' in page.text
            assert "keyhouse token --operator" in page.text

    asyncio.run(main())


def test_a_session_that_is_revoked_while_it_is_renewed_does_not_come_back(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        sessions = served.studio.sessions.stored
        async with served.signed_in():
            [session], _ = await sessions.page()
            later = session.expires + 1_000
            await asyncio.gather(
                *(sessions.renew(session.id, later) for _ in range(5)),
                sessions.end(session.id),
            )
            await sessions.renew(session.id, later)
            assert await sessions.page() == ([], "")

    run(tmp_path, scenario)


def test_a_link_that_was_used_is_reported_as_such(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        code = await served.studio.sessions.new_link()
        async with served.client() as client:
            first = await client.post("/studio/login", data={"token": code})
            assert first.status_code == 303
            again = await client.post("/studio/login", data={"token": code})
            assert again.status_code == 401
            assert "The link was used already" in again.text

    run(tmp_path, scenario)


def test_all_sessions_are_listed_page_by_page_with_the_newest_first(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        store = served.studio.sessions.stored.store
        for number in range(230):
            session = Session(
                id=f"{number:05d}",
                operator=f"op{number}",
                scopes=["studio:read"],
                secret_hash="x",
                created=number,
                expires=store.engine.clock.now() + 3_600_000,
            )
            await store.put(SESSION, session, ttl=3_600)
        async with served.signed_in() as client:
            seen: list[str] = []
            cursor = ""
            while True:
                params = {"cursor": cursor}
                page = (await client.get("/studio/sessions.json", params=params)).json()
                seen += [each["operator"] for each in page["sessions"]]
                html = (await client.get("/studio/sessions", params=params)).text
                assert ("Older" in html) == bool(page["cursor"])
                cursor = page["cursor"]
                if not cursor:
                    break
        assert seen == ["ann", *(f"op{number}" for number in reversed(range(230)))]

    run(tmp_path, scenario)


def test_a_session_lasts_eight_hours_after_its_last_use(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with library(tmp_path, own=MemoryEngine(clock)) as served:
            code = await served.studio.sessions.new_link()
            async with served.client() as client:
                await client.post("/studio/login", data={"token": code})
                for hours, status in ((7, 200), (7, 200), (7, 200), (8, 401), (0, 401)):
                    clock.advance(seconds=hours * 3_600)
                    answer = await client.get("/studio/index.json")
                    assert answer.status_code == status, hours

    asyncio.run(main())


def test_the_cookie_is_secure_under_https(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.client() as client:
            answer = await client.post("https://localhost/studio/login", data={"token": token()})
            assert "; Secure" in answer.headers["set-cookie"]

    run(tmp_path, scenario)


def test_a_bearer_token_has_no_session_to_unlock_or_to_end(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        headers = {"Authorization": f"Bearer {token()}"}
        async with served.client(headers=headers) as client:
            answer = await client.post("/studio/lock", data={"unlocked": "on"})
            assert answer.status_code == 403
            assert "A token has no session to unlock" in answer.text
            assert (await client.post("/studio/logout")).status_code == 303

    run(tmp_path, scenario)
