"""Passwords and the slow-down of logins, on the real HTTP listener."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import BusyError, LimitError, RateError, TokenError, UnreadableError
from keyhouse.http import ClientAddress, Route
from keyhouse.service.accounts.known_clients import DEVICE_SECONDS, KnownClients
from keyhouse.service.accounts.login_guard import LoginGuard
from keyhouse.service.accounts.passwords import PasswordCheck, PasswordParameters, Passwords
from keyhouse.service.limits import PASSWORD_HASHES_MAX
from keyhouse.service.spec import ServiceSpec
from keyhouse.service.thread_priority import spare_cores
from tests.http.support.real_server import run, serving
from tests.support.polling import until

R = TypeVar("R")

CHEAP = PasswordParameters(time_cost=1, memory_kib=64)
HERE = ClientAddress("192.0.2.1", "192.0.2.1")
ELSEWHERE = ClientAddress("192.0.2.2", "192.0.2.2")


def test_a_password_verifies_against_its_hash_only() -> None:
    async def scenario() -> None:
        passwords = Passwords(CHEAP)
        one, other = await passwords.hash("correct"), await passwords.hash("correct")
        assert one.startswith("$argon2id$") and one != other, "salted"
        assert await passwords.verify(one, "correct") == PasswordCheck(True)
        assert await passwords.verify(one, "wrong") == PasswordCheck(False)
        assert await passwords.verify(None, "") == PasswordCheck(False), "no such account"
        assert await passwords.verify(await passwords.hash("é"), "é") == PasswordCheck(True)
        await passwords.close()

    run(scenario)


def test_changed_parameters_give_a_new_hash_at_the_next_login() -> None:
    async def scenario() -> None:
        old = await Passwords(CHEAP).hash("correct")
        passwords = Passwords(PasswordParameters(time_cost=2, memory_kib=64))
        check = await passwords.verify(old, "correct")
        assert check.is_valid and check.new_hash is not None and "t=2" in check.new_hash
        assert await passwords.verify(check.new_hash, "correct") == PasswordCheck(True)
        assert (await passwords.verify(old, "wrong")).new_hash is None

    run(scenario)


def test_long_passwords_and_broken_hashes_are_rejected() -> None:
    async def scenario() -> None:
        passwords = Passwords(CHEAP)
        with pytest.raises(LimitError, match="too long"):
            await passwords.hash("x" * 1_025)
        with pytest.raises(UnreadableError, match="does not decode"):
            await passwords.verify("plain text", "x")

    run(scenario)


@pytest.mark.parametrize(("cores", "at_once"), [(1, 1), (2, 1), (3, 2), (64, 2)])
def test_hashes_leave_a_core_free_and_others_wait_or_are_rejected(
    cores: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hashes on two cores delayed every request by a tick of the scheduler."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(cores)}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)  # where affinity is unknown

    async def scenario() -> None:
        passwords = Passwords(CHEAP, pending_max=5 - at_once)
        release, threads = threading.Event(), set[int]()
        most = 0
        running = 0
        lock = threading.Lock()

        def slow(password: str) -> str:
            nonlocal most, running
            with lock:
                running += 1
                most = max(most, running)
            threads.add(threading.get_ident())
            release.wait(60)
            with lock:
                running -= 1
            return "hash"

        monkeypatch.setattr(passwords, "hash_now", slow)
        logins = [asyncio.create_task(passwords.hash("x")) for _ in range(5)]
        await until(lambda: running >= at_once)
        with pytest.raises(BusyError):
            await passwords.hash("x")
        release.set()
        assert await asyncio.gather(*logins) == ["hash"] * 5
        assert most == at_once and threading.get_ident() not in threads

    run(scenario)


# The slow-down


def now(work: Coroutine[Any, Any, R]) -> R:
    return asyncio.run(work)


SHARED = pytest.mark.parametrize("is_shared", [False, True], ids=["process", "rows"])
"""Failures of one process, and those that several share."""


def login_guard(clock: ManualClock, is_shared: bool = False, **options: Any) -> LoginGuard:
    return LoginGuard(
        clock=clock, shared=MemoryEngine(clock=clock) if is_shared else None, **options
    )


def attempts(guard: LoginGuard, account: str, client: ClientAddress, count: int) -> int:
    """Return how many of these attempts were allowed."""
    allowed = 0
    for _ in range(count):
        try:
            now(guard.check(account, client))
            allowed += 1
        except RateError:
            pass
    return allowed


@SHARED
def test_guesses_of_one_account_are_slowed_down_and_never_rejected(is_shared: bool) -> None:
    """The delay of an account was a rejection: any client that sent guesses kept its owner out."""
    clock = ManualClock()
    guard = login_guard(clock, is_shared)
    assert [now(guard.check("ann", HERE)) for _ in range(5)] == [0] * 5
    waits = []
    for number in range(100):
        address = ClientAddress(f"10.0.0.{number}", f"10.0.0.{number}")
        waits.append(now(guard.check("ANN", address)))
    assert waits[:5] == [0.1, 0.2, 0.4, 0.8, 1.6] and max(waits) == 2
    now(guard.succeeded("ann", ELSEWHERE))
    assert now(guard.check("ann", ELSEWHERE)) == 0


@SHARED
def test_guesses_of_one_address_are_slowed_down_for_all_accounts(is_shared: bool) -> None:
    guard = login_guard(ManualClock(), is_shared)
    assert sum(attempts(guard, f"user{number}", HERE, 1) for number in range(1_000)) == 20
    assert attempts(guard, "user1", ELSEWHERE, 1) == 1


def test_processes_on_one_engine_count_failures_together() -> None:
    """Each process had its own count: three of them compared 45 wrong passwords of an address where
    15 were allowed."""
    clock = ManualClock()
    engine = MemoryEngine(clock=clock)
    guards = [LoginGuard(clock=clock, shared=engine) for _ in range(3)]

    async def count(guard: LoginGuard, client: ClientAddress) -> int:
        allowed = 0
        for number in range(30):
            with suppress(RateError):
                await guard.check(f"user{number}", client)
                allowed += 1
        return allowed

    async def scenario() -> None:
        assert sum(await asyncio.gather(*(count(guard, HERE) for guard in guards))) == 20
        for guard in guards:
            await guard.check("ann", ELSEWHERE)
        assert [await guard.check("ann", ELSEWHERE) for guard in guards] == [0, 0, 0.1]
        clock.advance(seconds=3_700)
        await engine.sweep(limit=1_000)
        assert [space async for space in engine.spaces()] == []

    asyncio.run(scenario())


@SHARED
def test_a_success_clears_the_account_but_not_the_address(is_shared: bool) -> None:
    guard = login_guard(ManualClock(), is_shared)
    for _ in range(100):
        now(guard.check("ann", HERE))
        now(guard.succeeded("ann", HERE))
    for number in range(19):
        now(guard.check(f"user{number}", HERE))
        now(guard.check("mallory", ELSEWHERE))
        now(guard.succeeded("mallory", ELSEWHERE))
    now(guard.check("mallory", HERE))
    now(guard.succeeded("mallory", HERE))  # an account of the attacker's does not reset the count
    assert attempts(guard, "ann", HERE, 10) == 1


def test_a_flood_of_logins_leaves_a_place_for_addresses_with_a_past_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of logins from as many addresses filled the queue, and a member of the household
    got 503 like the others."""

    async def scenario() -> None:
        passwords, guard = Passwords(CHEAP, pending_max=4), LoginGuard()
        stored = await passwords.hash("correct")
        await guard.succeeded("ann", HERE)
        release, started = threading.Event(), threading.Event()
        verify = passwords.verify_now
        order: list[str] = []

        def held(of: str | None, password: str) -> PasswordCheck:
            started.set()
            assert release.wait(60)
            order.append(password)
            return verify(of, password)

        monkeypatch.setattr(passwords, "verify_now", held)
        flood = [asyncio.ensure_future(passwords.verify(None, "guess")) for _ in range(50)]
        await until(started.is_set)
        assert guard.is_known("Ann", HERE) and not guard.is_known("ann", ELSEWHERE)
        assert not guard.is_known("mallory", HERE), "of this user"
        with pytest.raises(BusyError):
            await passwords.verify(stored, "correct")
        member = asyncio.ensure_future(passwords.verify(stored, "correct", preferred="ann"))
        await asyncio.sleep(0)
        release.set()
        assert (await member).is_valid
        results = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(each, BusyError) for each in results) >= 40
        at = spare_cores(PASSWORD_HASHES_MAX)
        assert "correct" in order[: at + 1], "it goes before those that wait"
        await passwords.close()

    run(scenario)


def test_logins_of_one_known_user_do_not_go_before_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any viewer could send as many right logins as the preferred queue holds, and all other known
    users waited behind them."""

    async def scenario() -> None:
        passwords = Passwords(CHEAP, pending_max=100)
        release = threading.Event()
        order: list[str] = []

        def held(of: str | None, password: str) -> PasswordCheck:
            assert release.wait(60)
            order.append(password)
            return PasswordCheck(is_valid=True)

        monkeypatch.setattr(passwords, "verify_now", held)

        def login(name: str) -> asyncio.Future[PasswordCheck]:
            return asyncio.ensure_future(passwords.verify(None, name, preferred=name))

        viewer = [login("viewer") for _ in range(50)]
        await asyncio.sleep(0)
        others = [login("ann"), login("bob")]
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*viewer, *others)
        before = spare_cores(PASSWORD_HASHES_MAX) + 2 + len(others)
        assert {"ann", "bob"} <= set(order[:before])
        assert "viewer" not in repr(vars(passwords)), "nothing is kept of it"
        await passwords.close()

    run(scenario)


def test_failures_are_forgotten_and_memory_is_bounded() -> None:
    clock = ManualClock()
    guard = LoginGuard(clock=clock, entries_max=10)
    assert attempts(guard, "ann", HERE, 30) == 20
    clock.advance(seconds=3_700)
    assert attempts(guard, "ann", HERE, 30) == 20
    for number in range(100):
        client = ClientAddress(f"10.0.0.{number}", f"10.0.0.{number}")
        now(guard.check(f"user{number}", client))
    assert attempts(guard, "ann", HERE, 30) == 20, "others came between, and it was forgotten"
    now(guard.succeeded("ann", HERE))
    others = [ClientAddress(f"10.0.0.{number}", f"10.0.0.{number}") for number in range(100)]
    for client in others:
        now(guard.succeeded("ann", client))
    assert [client for client in others if guard.is_known("ann", client)] == others[-10:]
    assert not guard.is_known("ann", HERE)


def test_a_device_is_known_for_its_user_only_whatever_its_address_and_for_half_a_year() -> None:
    clock = ManualClock()
    known = KnownClients(cookie="device", key=b"k" * 32, clock=clock)
    header = known.device_cookie("ann", HERE)[1]
    cookie = header.partition(";")[0]
    assert {"HttpOnly", "SameSite=Strict", "Max-Age=15552000"} <= set(header.split("; "))
    device = known.device("ann", f"other=1; {cookie}; last=2")
    assert len(device) == 32 and device in cookie
    again = KnownClients(cookie="device", key=b"k" * 32, clock=clock)
    assert again.device("ann", cookie) == device, "in another process"
    assert not known.device("mallory", cookie)
    assert not known.device("ann", f"x{cookie}") and not known.device("ann", "")
    for index in range(len("device="), len(cookie)):
        changed = "0" if cookie[index] != "0" else "1"
        assert not known.device("ann", cookie[:index] + changed + cookie[index + 1 :]), index
    assert not KnownClients(cookie="device", key=b"x" * 32, clock=clock).device("ann", cookie)
    assert not KnownClients().device("ann", cookie), "without a key"
    clock.advance(seconds=DEVICE_SECONDS)
    assert not known.device("ann", cookie)


@SHARED
def test_others_at_the_same_address_do_not_stop_a_known_device(is_shared: bool) -> None:
    guard = login_guard(ManualClock(), is_shared)
    assert attempts(guard, "ann", HERE, 100) == 20
    with pytest.raises(RateError):
        now(guard.check("ann", HERE))
    assert now(guard.check("ann", HERE, "device")) == 2, (
        "slowed down, as all attempts of the account"
    )
    now(guard.succeeded("ann", HERE, "device"))
    allowed = 0
    with pytest.raises(RateError):
        for _ in range(100):
            now(guard.check("ann", ELSEWHERE, "device"))
            allowed += 1
    assert allowed == 20, "a device has its own limit"


class Credentials(msgspec.Struct):
    user: str
    password: str


def test_logins_do_not_delay_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing on the loop made every other request wait for it."""

    async def scenario() -> None:
        passwords, guard = Passwords(CHEAP), LoginGuard(account_attempts=100, address_attempts=100)
        stored = await passwords.hash("correct")
        verify, started, release = passwords.verify_now, threading.Event(), threading.Event()

        def held(*arguments: Any) -> PasswordCheck:
            """Verify after the pings: threads that hash have the lowest priority."""
            started.set()
            assert release.wait(60)
            return verify(*arguments)

        monkeypatch.setattr(passwords, "verify_now", held)

        async def sign_in(body: Credentials, client: ClientAddress) -> dict[str, bool]:
            """Sign in."""
            await guard.check(body.user, client)
            check = await passwords.verify(stored if body.user == "ann" else None, body.password)
            if not check.is_valid:
                raise TokenError("The name or the password is wrong.")
            await guard.succeeded(body.user, client)
            return {"ok": True}

        async def ping() -> dict[str, bool]:
            """Answer."""
            return {"ok": True}

        spec = ServiceSpec(
            name="users",
            routes=[
                Route(method="POST", path="/in", handler=sign_in),
                Route(method="GET", path="/ping", handler=ping),
            ],
        )
        async with serving(spec) as client:

            async def login(user: str, password: str) -> int:
                body = {"user": user, "password": password}
                return (await client.post("/in", json=body)).status_code

            logins: list[Any] = [
                asyncio.create_task(login("ann", "correct" if number % 2 else "wrong"))
                for number in range(6)
            ]
            logins.append(asyncio.create_task(login("nobody", "correct")))
            await until(started.is_set)
            for _ in range(50):
                assert (await client.get("/ping")).status_code == 200
            assert not any(login.done() for login in logins)
            release.set()
            assert await asyncio.gather(*logins) == [401, 200, 401, 200, 401, 200, 401]

    run(scenario)
