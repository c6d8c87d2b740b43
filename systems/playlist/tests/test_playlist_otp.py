"""Sign-in with one-time codes: locks, rates, sessions, blocked addresses and roles."""

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keyhouse.clock import ManualClock
from keyhouse_playlist.schema import (
    BLESSED,
    IP_BLOCK,
    OTP_LOCK,
    OTP_REQUEST,
    ROLE,
    SESSION,
    RoleOf,
)
from systems.playlist.tests.support.service import PlaylistService, Visitor, playlist_service
from systems.playlist.tests.support.service import run as run_service

REQUEST, VERIFY = "/auth/otp/request", "/auth/otp/verify"


run = partial(run_service, blessed=())


def advance(service: PlaylistService, seconds: float) -> None:
    assert isinstance(service.clock, ManualClock)
    service.clock.advance(seconds=seconds)


async def guess(visitor: Visitor, code: str, name: str = "Bob") -> Any:
    return await visitor.post(VERIFY, {"username": name, "otp": code})


def test_a_code_starts_a_session_once(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        visitor = service.visitor()
        sent = await visitor.post(REQUEST, {"username": " Bob "})
        assert sent == {"status": "sent", "expires_in_seconds": 300}
        code = service.codes["Bob"]
        assert len(code) == 8 and code.isalnum() and code.upper() == code
        response = await visitor("POST", VERIFY, {"username": "bob", "otp": code.lower()})
        assert response.json() == {"status": "ok", "role": "viewer"}
        cookie, device = response.headers.get_list("set-cookie")
        assert cookie.startswith("kryten_playlist_session=")
        assert {"HttpOnly", "SameSite=Lax", "Max-Age=43200"} <= set(cookie.split("; "))
        assert device.startswith("kryten_playlist_device=") and "HttpOnly" in device
        session = await visitor.get("/auth/session")
        assert session == {
            "username": "bob",
            "role": "viewer",
            "expires_at": "2026-01-01T12:00:00Z",
        }
        again = await service.visitor().post(VERIFY, {"username": "Bob", "otp": code})
        assert again["status"] == "unrequested"
        advance(service, 12 * 3600)
        assert (await visitor("GET", "/auth/session")).status_code == 401

    run(tmp_path, work)


def test_nothing_stored_or_logged_lets_a_reader_sign_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets: list[str] = []

    async def work(service: PlaylistService) -> None:
        visitor = service.visitor()
        await visitor.post(REQUEST, {"username": "Bob"})
        code = service.codes["Bob"]
        await guess(visitor, code)
        await visitor.post(REQUEST, {"username": "Bob"})
        cookie = visitor.http.cookies["kryten_playlist_session"]
        secrets.extend((code, service.codes["Bob"], cookie))
        stored = [row.value async for row in service.stores.auth.row_scan()]
        keys = [row.key async for row in service.stores.auth.row_scan()]
        text = b"".join(stored).decode() + "".join(keys)
        assert not [each for each in secrets if each in text]
        [session] = [key for key in keys if "/session/" in key]
        copied = service.visitor()
        copied.http.cookies.set("kryten_playlist_session", session.rpartition("/")[2])
        assert (await copied("GET", "/auth/session")).status_code == 401

    run(tmp_path, work)
    shown = capsys.readouterr()
    assert not [each for each in secrets if each in shown.out + shown.err]


def test_three_failures_over_all_codes_lock_the_name_for_clients_without_a_code(
    tmp_path: Path,
) -> None:
    """AC-003: attempts decrement, and lock out after 3 failures."""

    async def work(service: PlaylistService) -> None:
        await service.visitor().post(REQUEST, {"username": "Bob"})
        other = service.visitor()
        assert await guess(other, "WRONG") == {"status": "invalid", "attempts_remaining": 2}
        stored = await service.stores.auth.get(OTP_REQUEST, username="bob")
        assert stored is not None and stored.attempts_remaining == 2
        await service.visitor().post(REQUEST, {"username": "Bob"})  # does not reset the count
        assert await guess(other, "WRONG") == {"status": "invalid", "attempts_remaining": 1}
        await service.visitor().post(REQUEST, {"username": "Bob"})
        assert await guess(other, "WRONG") == {"status": "locked", "retry_after_seconds": 3600}
        for name in ("Bob", "BOB"):
            right = await guess(other, service.codes["Bob"], name)
            assert right == {"status": "locked", "retry_after_seconds": 3600}
        advance(service, 3601)
        await service.visitor().post(REQUEST, {"username": "Bob"})
        assert (await guess(other, service.codes["Bob"]))["status"] == "ok"
        assert await service.stores.auth.get(OTP_LOCK, username="bob") is None

    run(tmp_path, work)


def test_wrong_codes_of_others_do_not_stop_the_one_who_requested_a_code(tmp_path: Path) -> None:
    """Four anonymous requests an hour, one for a code and three wrong codes, locked an admin out:
    the lock was one for all clients, and a locked name got no code."""

    async def work(service: PlaylistService) -> None:
        early, late = service.visitor(), service.visitor("192.0.2.2")
        await early.post(REQUEST, {"username": "Ada"})
        code = service.codes["Ada"]
        for number in range(20):  # each from another address, with and without a request
            other = service.visitor(f"198.51.100.{number}")
            if number % 2:
                await other.post(REQUEST, {"username": "ada"})
            for _ in range(4):
                assert (await guess(other, "WRONG", "ADA"))["status"] in ("invalid", "locked")
        assert (await guess(service.visitor(), code, "Ada"))["status"] == "locked"
        assert await guess(early, "TYPO", "Ada") == {"status": "invalid", "attempts_remaining": 2}
        assert await guess(early, code, "Ada") == {"status": "ok", "role": "admin"}
        for number in range(3):
            await guess(service.visitor(f"203.0.113.{number}"), "WRONG", "Ada")
        await late.sign_in("Ada")

    run(tmp_path, work)


def test_a_code_has_three_guesses_of_the_client_that_requested_it(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = service.visitor()
        await bob.post(REQUEST, {"username": "Bob"})
        answers = await asyncio.gather(*(guess(bob, f"WRONG{at:03}") for at in range(1_000)))
        statuses = Counter(answer["status"] for answer in answers)
        assert statuses == {"invalid": 2, "locked": 998}
        assert (await guess(bob, service.codes["Bob"]))["status"] == "locked"
        await bob.sign_in("Bob")  # with another code

    run(tmp_path, work)


def test_a_code_of_one_client_is_not_guessed_with_the_cookie_of_another(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob, mallory = service.visitor(), service.visitor("192.0.2.2")
        await bob.post(REQUEST, {"username": "Bob"})
        code = service.codes["Bob"]
        await mallory.post(REQUEST, {"username": "Bob"})
        assert (await guess(mallory, code))["status"] == "invalid"
        await mallory.post(REQUEST, {"username": "Mallory"})  # one cookie, a code for each name
        assert (await guess(mallory, service.codes["Mallory"], "Bob"))["status"] == "invalid"
        assert (await guess(bob, code))["status"] == "ok"
        assert (await guess(bob, code))["status"] != "ok"

    run(tmp_path, work)


@pytest.mark.parametrize("has_cookie", [True, False])
def test_a_used_code_is_dead_with_and_without_its_cookie(tmp_path: Path, has_cookie: bool) -> None:
    async def work(service: PlaylistService) -> None:
        bob, other = service.visitor(), service.visitor()
        await bob.post(REQUEST, {"username": "Bob"})
        code = service.codes["Bob"]
        first, second = (bob, other) if has_cookie else (other, bob)
        assert (await guess(first, code))["status"] == "ok"
        assert (await guess(second, code))["status"] == "unrequested"

    run(tmp_path, work)


def test_a_thousand_parallel_guesses_in_two_services_evaluate_three(tmp_path: Path) -> None:
    async def main() -> None:
        async with playlist_service(tmp_path) as one:
            engine, clock = one.engine, one.clock
            async with playlist_service(tmp_path, engine=engine, clock=clock) as other:
                await one.visitor().post(REQUEST, {"username": "Bob"})
                visitors = [one.visitor(), other.visitor()]
                answers = await asyncio.gather(
                    *(guess(visitors[at % 2], f"WRONG{at:03}") for at in range(1_000))
                )
        statuses = Counter(answer["status"] for answer in answers)
        assert statuses["invalid"] == 2 and statuses["locked"] == 998
        remaining = sorted(
            answer["attempts_remaining"] for answer in answers if answer["status"] == "invalid"
        )
        assert remaining == [1, 2]

    asyncio.run(main())


def test_guesses_of_a_name_are_bounded_over_all_clients(tmp_path: Path) -> None:
    """Each client has three guesses at each code that it requested; codes are bounded by name."""

    async def work(service: PlaylistService) -> None:
        visitors = [service.visitor(f"10.0.{number}.1") for number in range(100)]
        sent = [(await each("POST", REQUEST, {"username": "Bob"})).status_code for each in visitors]
        assert Counter(sent) == {200: 60, 429: 40}
        answers = await asyncio.gather(
            *(guess(visitors[at % 100], f"WRONG{at:03}") for at in range(1_000))
        )
        compared = sum("attempts_remaining" in answer for answer in answers)
        assert compared <= 2 * 60 + 2  # the last one of each is answered with `locked`

    run(tmp_path, work)


def test_two_right_codes_at_once_start_one_session(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        visitor = service.visitor()
        await visitor.post(REQUEST, {"username": "Bob"})
        code = service.codes["Bob"]
        answers = await asyncio.gather(*(guess(service.visitor(), code) for _ in range(5)))
        assert Counter(each["status"] for each in answers)["ok"] == 1
        assert await service.stores.auth.count(SESSION) == 1

    run(tmp_path, work)


def test_codes_are_limited_by_name_and_by_address(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        for _ in range(5):
            await service.visitor().post(REQUEST, {"username": "Bob"})
        sixth = await service.visitor()("POST", REQUEST, {"username": "BOB"})
        assert (sixth.status_code, sixth.json()["error"]["code"]) == (429, "rate_limited")
        assert sixth.json()["error"]["details"]["retry_after_seconds"] == 900
        await service.visitor("192.0.2.9").post(REQUEST, {"username": "BOB"})
        for number in range(15):
            await service.visitor().post(REQUEST, {"username": f"user{number}"})
        many = await service.visitor()("POST", REQUEST, {"username": "another"})
        assert many.status_code == 429
        await service.visitor("192.0.2.2").post(REQUEST, {"username": "another"})
        advance(service, 901)
        await service.visitor().post(REQUEST, {"username": "Bob"})

    run(tmp_path, work)


def test_requests_of_others_do_not_stop_the_codes_of_a_known_client(tmp_path: Path) -> None:
    """60 requests for codes of a name from 12 networks stopped its codes for 15 minutes."""

    async def work(service: PlaylistService) -> None:
        device, here = service.visitor("192.0.2.1"), service.visitor("192.0.2.2")
        for visitor in (device, here):
            await visitor.post(REQUEST, {"username": "Bob"})
            assert (await guess(visitor, service.codes["Bob"]))["status"] == "ok"
        for number in range(100):
            stranger = service.visitor(f"198.51.100.{number // 5}")
            answer = await stranger("POST", REQUEST, {"username": "BOB"})
        assert answer.status_code == 429
        moved = service.visitor("198.51.100.1")
        moved.http.cookies = device.http.cookies
        for visitor in (moved, service.visitor("192.0.2.2")):
            for _ in range(5):
                await visitor.post(REQUEST, {"username": "Bob"})
            sixth = await visitor("POST", REQUEST, {"username": "Bob"})
            assert sixth.status_code == 429, "known clients have a limit too"
            assert (await guess(visitor, service.codes["Bob"]))["status"] == "ok"

    run(tmp_path, work)


def test_an_address_blocks_itself_after_an_unrequested_code(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        visitor = service.visitor("2001:db8:1:2::5")
        early = await visitor("POST", "/auth/ipblock", {"action": "block"})
        assert (early.status_code, early.json()["error"]["code"]) == (409, "no_block_intent")
        assert await guess(visitor, "AAAAAAAA") == {
            "status": "unrequested",
            "can_block_ip": True,
            "default_block_hours": 72,
        }
        blocked = await visitor.post("/auth/ipblock", {"action": "block", "hours": 1})
        assert blocked == {"status": "blocked", "blocked_until": "2026-01-01T01:00:00Z"}
        for address in ("2001:db8:1:2::5", "2001:db8:1:2::6"):
            refused = await service.visitor(address)("POST", REQUEST, {"username": "Bob"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "ip_blocked")
        await service.visitor("2001:db8:1:3::5").post(REQUEST, {"username": "Bob"})
        advance(service, 3601)
        await visitor.post(REQUEST, {"username": "Bob"})

    run(tmp_path, work)


def test_an_intent_to_block_lasts_five_minutes(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        visitor = service.visitor()
        await guess(visitor, "AAAAAAAA")
        advance(service, 301)
        assert (await visitor("POST", "/auth/ipblock", {"action": "block"})).status_code == 409

    run(tmp_path, work)


def test_admins_block_any_address_in_its_canonical_form(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        body = {"action": "block", "ip": "::ffff:198.51.100.7", "hours": 720}
        vic, ada = await service.member("Vic"), await service.member("Ada")
        assert (await service.visitor()("POST", "/auth/ipblock", body)).status_code == 403
        assert (await vic("POST", "/auth/ipblock", body)).status_code == 403
        await ada.post("/auth/ipblock", body)
        assert await service.stores.auth.get(IP_BLOCK, ip="198.51.100.7") is not None
        blocked = await service.visitor("198.51.100.7")("POST", REQUEST, {"username": "Bob"})
        assert blocked.status_code == 403
        for hours in (0, 721):
            wrong = await ada("POST", "/auth/ipblock", {**body, "hours": hours})
            assert wrong.status_code == 422
        junk = await ada("POST", "/auth/ipblock", {**body, "ip": "localhost"})
        assert junk.status_code == 400

    run(tmp_path, work)


def test_a_block_by_an_admin_holds_for_known_devices_and_is_not_replaced(tmp_path: Path) -> None:
    """A client that was offered to block itself could replace the admin's block by a weaker one."""

    async def work(service: PlaylistService) -> None:
        address = "198.51.100.7"
        ada, known, other = await service.member("Ada"), *map(service.visitor, [address] * 2)
        await known.sign_in("Vic")
        await guess(other, "AAAAAAAA")
        await ada.post("/auth/ipblock", {"action": "block", "ip": address, "hours": 720})
        await other("POST", "/auth/ipblock", {"action": "block", "hours": 1})
        advance(service, 3_601)
        for client in (known, other):
            refused = await client("POST", REQUEST, {"username": "Vic"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "ip_blocked")
        await ada.post("/auth/ipblock", {"action": "block", "ip": address, "hours": 1})
        advance(service, 3_601)
        await other.post(REQUEST, {"username": "Vic"})

    run(tmp_path, work)


def test_roles_are_resolved_on_every_request(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob, acl = await service.member("Bob"), service.stores.acl

        async def role() -> str:
            return str((await bob.get("/auth/session"))["role"])

        assert await role() == "viewer"
        await acl.put(ROLE, RoleOf(role="blessed"), username="bob")
        assert await role() == "blessed"
        advance(service, 60)
        await acl.put(ROLE, RoleOf(role="admin"), username="BOB")
        assert await role() == "admin"
        await acl.put(BLESSED, ["boB"])
        assert await role() == "blessed"
        await acl.delete(BLESSED)
        await acl.delete(ROLE, username="BOB")
        await acl.delete(ROLE, username="bob")
        assert await role() == "viewer"

    run(tmp_path, work)


def test_signing_out_ends_the_session(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        cookie = bob.http.cookies["kryten_playlist_session"]
        assert await bob.post("/auth/logout") == {"status": "ok"}
        stolen = service.visitor()
        stolen.http.cookies.set("kryten_playlist_session", cookie)
        assert (await stolen("GET", "/auth/session")).status_code == 401
        assert await service.visitor().post("/auth/logout") == {"status": "ok"}

    run(tmp_path, work)


def test_processes_with_different_keys_reject_the_code_and_count_no_failure(tmp_path: Path) -> None:
    async def main() -> None:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
        async with (
            playlist_service(tmp_path / "one") as one,
            playlist_service(tmp_path / "other", engine=one.engine, clock=one.clock) as other,
        ):
            visitor = one.visitor()
            await visitor.post("/auth/otp/request", {"username": "Ada"})
            code = (one.codes | other.codes)["Ada"]
            body = {"username": "Ada", "otp": code}
            for _ in range(4):
                refused = await other.visitor()("POST", "/auth/otp/verify", body)
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "otp_key_mismatch"
            assert (await visitor.post("/auth/otp/verify", body))["status"] == "ok"

    asyncio.run(main())


def test_one_setting_is_the_lifetime_of_a_session_and_of_its_cookie(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        visitor = service.visitor()
        await visitor.post(REQUEST, {"username": "Bob"})
        body = {"username": "Bob", "otp": service.codes["Bob"]}
        response = await visitor("POST", VERIFY, body)
        assert "Max-Age=5400" in response.headers.get_list("set-cookie")[0].split("; ")
        assert (await visitor.get("/auth/session"))["expires_at"] == "2026-01-01T01:30:00Z"

    run(tmp_path, work, session_hours=1.5)
