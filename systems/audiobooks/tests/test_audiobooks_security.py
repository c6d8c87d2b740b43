"""Guesses, forged requests, paths out of the library and secrets at rest, over HTTP."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import RecordError
from keyhouse.store import Store
from keyhouse_audiobooks.files.generated_audio import write_audio
from keyhouse_audiobooks.schema import ARGON2_PARAMS, SCHEMAS, SEGMENT, USER
from systems.audiobooks.tests.support.service import CHEAP, PASSWORD, LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_scan import album, books, finished, scan, segments
from tests.support import engine_openers

TIMED = replace(CHEAP, time_cost=2, memory_cost_kib=32 * 1_024)


def test_an_unknown_user_takes_as_long_as_a_wrong_password(tmp_path: Path) -> None:
    """By the CPU time of this process, in which the service runs: threads that hash have the lowest
    priority, and wait on a busy machine."""
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with LibraryService(opener, tmp_path / "data", cost=TIMED) as service, service.admin() as admin:
        for number in range(5):
            body = {"username": f"user{number}", "password": PASSWORD, "roles": []}
            assert admin.post("/users", json=body).status_code == 201
        seconds: dict[str, list[float]] = {"user": [], "nobody": []}
        with service.client() as guest:
            for number in range(5):  # fewer than an account or an address is slowed down for
                for name, taken in seconds.items():
                    body = {"username": f"{name}{number}", "password": "wrong horse"}
                    start = time.process_time()
                    assert guest.post("/auth/login", json=body).status_code == 401
                    taken.append(time.process_time() - start)
        wrong, unknown = (min(taken) for taken in seconds.values())
        assert 0.4 < unknown / wrong < 2.5, seconds


def test_the_parameters_of_the_hash_are_stored_and_are_argon2id(
    tmp_path: Path,
) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with LibraryService(opener, tmp_path / "data", cost=None) as service, service.admin():

        async def stored(store: Store) -> Any:
            return await store.get(ARGON2_PARAMS)

        found = service.run(stored)
        assert (found.time_cost, found.memory_cost_kib, found.parallelism) == (3, 65_536, 1)
        assert (found.hash_bytes, found.salt_bytes) == (32, 16)


def test_a_login_hashes_the_password_again_when_the_parameters_have_changed(
    tmp_path: Path,
) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)

    async def stored(store: Store) -> str:
        [user] = [entry.record async for entry in store.scan(USER)]
        return str(user.password_hash)

    with LibraryService(opener, tmp_path / "data") as service, service.admin():
        assert "$m=8,t=1,p=1$" in service.run(stored)
    with LibraryService(opener, tmp_path / "data", cost=replace(CHEAP, time_cost=2)) as service:
        assert "$m=8,t=1,p=1$" in service.run(stored)
        for _ in range(2):
            service.signed_in("admin").close()
            assert "$m=8,t=2,p=1$" in service.run(stored)


def test_guesses_of_the_current_password_are_limited(tmp_path: Path) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        clients = [service.user(admin, name, "viewer") for name in ("user0", "user1")]
        body = {"current_password": "wrong horse", "new_password": "another horse"}
        for _ in range(15):
            service.clock.advance(seconds=3)  # the account is slowed down by less
            reply = clients[0].put("/auth/me/password", json=body)
            assert is_error(reply, 403, "FORBIDDEN")
        blocked = clients[0].put("/auth/me/password", json=body)
        assert is_error(blocked, 429, "TOO_MANY_REQUESTS")
        assert int(blocked.headers["retry-after"]) > 0
        body["current_password"] = PASSWORD
        assert clients[1].put("/auth/me/password", json=body).status_code == 200, "another session"
        service.clock.advance(seconds=901)
        assert clients[0].put("/auth/me/password", json=body).status_code == 200
        for client in clients:
            client.close()


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_no_file_of_the_library_holds_a_secret_in_clear(tmp_path: Path, engine: str) -> None:
    opener = engine_openers.ALL[engine](tmp_path)
    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        token = admin.headers["authorization"].removeprefix("Bearer ")
        key = admin.post("/auth/api-keys", json={"name": "player"}).json()["data"]["key"]
        known = b"player"
        stored = _bytes_below(tmp_path)
        assert known in stored  # what is in the store is found by this
        for secret in (token.split(".")[1], key.split(".")[1], PASSWORD):
            assert secret.encode() not in stored
    stored = _bytes_below(tmp_path)
    assert token.split(".")[1].encode() not in stored and PASSWORD.encode() not in stored


def _bytes_below(folder: Path) -> bytes:
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # an engine that runs deletes files
            found.append(path.read_bytes() if path.is_file() else b"")
    return b"".join(found)


FORGED = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


def test_a_forged_request_with_the_cookie_is_403_and_changes_nothing(
    service: LibraryService, admin: httpx.Client
) -> None:
    with service.client() as browser:
        body = {"username": "admin", "password": PASSWORD}
        assert browser.post("/auth/login", json=body).status_code == 200
        title = {"title": "Forged"}
        for headers in FORGED:
            reply = browser.post("/books", json=title, headers=headers)
            assert is_error(reply, 403, "FORBIDDEN"), headers
        origin = service.url.removesuffix("/audiobooks/api/v1")
        own = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
        assert browser.post("/books", json={"title": "Own"}, headers=own).status_code == 201
        assert [book["title"] for book in books(admin)] == ["Own"]


PATHS_OUTSIDE = (
    *("..", "../outside", "/etc", "books/../../outside", "linked", "linked/inner"),
    *("a\0b", "x" * 3_000, "x/" * 1_500),
)


def test_no_path_of_a_request_leaves_the_roots(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0]
    outside = root.parent / "outside"
    write_audio(outside / "inner" / "part.wav", 5, tags={"album": "Outside"})
    os.symlink(outside, root / "linked")
    album(root)
    scan(admin)
    [book] = books(admin)
    for path in PATHS_OUTSIDE:
        reply = admin.post("/operations/scan", json={"folder_path": path})
        assert reply.status_code in (404, 422), (path, reply.text)
        for target in (path, f"{path}/part.wav", str(root / path / "part.wav")):
            merged = admin.post(f"/books/{book['id']}/merge", json={"file_path": target})
            assert merged.status_code in (404, 422), (path, merged.text)
    assert [each["title"] for each in books(admin)] == [book["title"]]


def test_audio_of_a_file_that_became_a_link_is_not_sent(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0]
    secret = root.parent / "secret.wav"
    secret.write_bytes(b"RIFF and a secret")
    folder = album(root, 1)
    scan(admin)
    [book] = books(admin)
    [segment] = segments(admin, book)
    path = f"/segments/{segment['id']}/audio"
    assert admin.get(path).status_code == 200
    (folder / "part 1.wav").unlink()
    os.symlink(secret, folder / "part 1.wav")
    assert is_error(admin.get(path), 404, "NOT_FOUND")

    async def point_elsewhere(store: Store) -> None:
        found = await store.get(SEGMENT, id=segment["id"])
        assert found is not None
        await store.put(SEGMENT, replace(found, file_path=f"{root}/../secret.wav"))

    service.run(point_elsewhere)
    assert is_error(admin.get(path), 404, "NOT_FOUND")


def test_organize_stays_below_its_root(service: LibraryService, admin: httpx.Client) -> None:
    root = service.roots[0]
    album(root, 1, album="../../escape", author="..")
    scan(admin)
    for pattern in ("../{track}.{ext}", "/{track}.{ext}", "{title}.{ext}", "{x}/{track}.{ext}"):
        reply = admin.post("/operations/organize", json={"pattern": pattern, "dry_run": False})
        assert is_error(reply, 400, "BAD_REQUEST"), pattern
    reply = admin.post("/operations/organize", json={"dry_run": False})
    assert finished(admin, reply)["status"] == "completed"
    [book] = books(admin)
    [segment] = segments(admin, book)
    path = Path(segment["file_path"])
    assert path.is_file() and root in path.parents and ".." not in path.parts


SPACES = [
    "",
    " ",
    "\t",
    "\n",
    "\x1f",
    "\x85",
    "\u00a0",
    "\u2028",
    "\u3000",
    "{series}",
    " {series} ",
]
ODD_PARTS = sorted({f"{a}{dots}{b}" for dots in (".", "..") for a in SPACES for b in SPACES})
PATTERNS = [
    "{odd}/{odd}/pwned/{track}.{ext}",
    "{title}/{odd}/{odd}/{odd}/pwned/{track}.{ext}",
    "{track}{ext}/{odd}/{odd}/authorized_keys",
    "{track}/{ext}/{odd}",
]


@pytest.mark.parametrize("service", ["memory"], ids=["one"], indirect=True)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_organize_leaves_no_root_by_a_part_that_becomes_dots(
    service: LibraryService, admin: httpx.Client, pattern: str
) -> None:
    """A pattern was checked before it was stripped and expanded: `.. /` and `..{series}`, for a
    book without a series, moved files anywhere."""
    root = service.roots[0]
    album(root, 1)
    scan(admin)

    def outside() -> list[Path]:
        found = (path for path in root.parent.rglob("*") if root not in path.parents)
        return sorted(path for path in found if path.is_dir() or path.suffix == ".wav")

    before = outside()
    for odd in ODD_PARTS:
        body = {"pattern": pattern.replace("{odd}", odd), "dry_run": False}
        reply = admin.post("/operations/organize", json=body)
        assert reply.status_code == 400 or finished(admin, reply)["status"] == "completed"
        [segment] = segments(admin, books(admin)[0])
        assert ".{ext}" in pattern or is_error(reply, 400, "BAD_REQUEST")
        assert outside() == before, repr(odd)
        names = Path(segment["file_path"]).relative_to(root).parts
        assert Path(segment["file_path"]).is_file() and not {".", ".."} & set(names)
        assert segment["file_path"].isprintable()


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_the_page_of_the_account_changes_the_password(
    service: LibraryService, admin: httpx.Client
) -> None:
    page = service.url.removesuffix("/api/v1") + "/account/password"
    with service.client() as browser:
        login = {"username": "admin", "password": PASSWORD}
        assert browser.post("/auth/login", json=login).status_code == 200
        form = {"current_password": "wrong horse", "new_password": "another horse"}
        assert browser.post(page, data=form).status_code == 403
        form["current_password"] = PASSWORD
        assert "The password is changed" in browser.post(page, data=form).text
    assert admin.get("/auth/me").status_code == 401  # the other session has ended


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
@pytest.mark.parametrize("end", ["revoked", "role", "expired"])
def test_a_stream_ends_with_its_session(
    service: LibraryService, admin: httpx.Client, end: str
) -> None:
    with (
        service.user(admin, "ann", "viewer") as ann,
        ann.stream("GET", "/events", params={"since": 0}) as events,
    ):
        admin.post("/books", json={"title": "Before"})
        lines = events.iter_lines()
        assert any("Before" in line for line in lines)
        user = ann.get("/auth/me").json()["data"]["id"]
        if end == "revoked":
            assert ann.post("/auth/logout").status_code == 200
        elif end == "role":
            admin.patch(f"/users/{user}", json={"roles": []})
        else:
            service.clock.advance(seconds=24 * 3_600)
        with service.signed_in("admin") as again:
            again.post("/books", json={"title": "Afterwards"})
        assert not any("Afterwards" in line for line in lines)


def test_listeners_see_paths_below_a_root_only(
    service: LibraryService, admin: httpx.Client
) -> None:
    folder = album(service.roots[0], 1, 5)
    scan(admin)
    [book] = books(admin)
    with service.user(admin, "vera", "viewer") as viewer, service.user(admin, "ed", "editor") as ed:
        [whole], [shown], [organized] = (segments(each, book) for each in (admin, viewer, ed))
        assert whole["file_path"] == organized["file_path"] == str(folder / "part 1.wav")
        assert shown["file_path"] == str((folder / "part 1.wav").relative_to(service.roots[0]))
        assert {**whole, "file_path": ""} == {**shown, "file_path": ""}
        os.rename(service.roots[0], service.folder / "elsewhere")
        audio = viewer.get(f"/segments/{shown['id']}/audio")
        assert is_error(audio, 404, "NOT_FOUND") and str(service.roots[0]) not in audio.text


def test_changed_parameters_of_the_hash_hold_from_the_next_login_on(tmp_path: Path) -> None:
    opener = engine_openers.ALL["sqlite"](tmp_path)

    async def hashes(store: Store) -> list[str]:
        return [entry.record.password_hash async for entry in store.scan(USER)]

    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        changed = replace(CHEAP, time_cost=2, memory_cost_kib=16, hash_bytes=24, salt_bytes=12)
        service.run(lambda store: store.put(ARGON2_PARAMS, changed))
        assert all("$m=8,t=1,p=1$" in each for each in service.run(hashes))
        with service.client() as guest:
            body = {"username": "admin", "password": "wrong horse"}
            assert is_error(guest.post("/auth/login", json=body), 401, "UNAUTHORIZED")
        assert all("$m=8,t=1,p=1$" in each for each in service.run(hashes))
        service.signed_in("admin").close()
        [hashed] = service.run(hashes)
        *_, parameters, salt, digest = hashed.split("$")
        assert (parameters, len(salt), len(digest)) == ("m=16,t=2,p=1", 16, 32)
        service.signed_in("admin").close()
        assert service.run(hashes) == [hashed], "hashed again once"
        with service.user(admin, "bob", "viewer"):
            assert all("$m=16,t=2,p=1$" in each for each in service.run(hashes))


@pytest.mark.parametrize(
    "wrong",
    [{"time_cost": 0}, {"memory_cost_kib": 4}, {"parallelism": 2}, {"salt_bytes": 1}],
    ids=str,
)
def test_parameters_that_argon2_does_not_accept_are_not_stored(
    tmp_path: Path, wrong: dict[str, int]
) -> None:
    async def work() -> None:
        engine = MemoryEngine()
        store = Store(SCHEMAS[0], engine, "main")
        with pytest.raises((RecordError, ValueError)):
            await store.put(ARGON2_PARAMS, replace(CHEAP, **wrong))
        assert await store.get(ARGON2_PARAMS) is None
        await engine.close()

    asyncio.run(work())
