"""A text that a program makes of a record has no private or sealed member: the message of an
exception is in the log, and one in the field of an error is in a response over NATS."""

import asyncio
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from keyhouse import KeyRing, Record, Schema, Space, Store, operation
from keyhouse.errors import ConflictError
from keyhouse.store import Entry
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.served import serving
from tests.support.engine_openers import memory

PLANTED: Final = "planted-4711"


class Account(Struct, kw_only=True):
    id: str
    pin: str = ""
    email: str = ""


class Premium(Account, kw_only=True):
    level: int = 1


class Spoken(Struct):
    id: str
    pin: str = ""

    def __repr__(self) -> str:
        return f"<{self.id}>"


ACCOUNT = Record(Account, "account:{id}", private=("pin",), sealed=("email",))
SPOKEN = Record(Spoken, "spoken:{id}", private=("pin",))
FOUND: Final = Premium(id="ann", pin=PLANTED, email=f"{PLANTED}@example.org")


def _with_note(found: Account) -> Exception:
    error = ValueError("No.")
    error.add_note(f"for {found}")
    return error


def _with_cause(found: Account) -> Exception:
    error = ValueError("No.")
    error.__cause__ = KeyError(found)
    return error


FAILURES: Final[dict[str, Callable[[Account], Exception]]] = {
    "argument": ValueError,
    "key": KeyError,
    "container": lambda found: ValueError([{"a": (found,)}]),
    "entry": lambda found: ValueError(Entry(found, "account:ann", ("ann",), 1, names=("id",))),
    "f-string": lambda found: RuntimeError(f"bad {found} {found!r}"),
    "percent": lambda found: RuntimeError("bad %s" % found),  # noqa: UP031 - as programs do
    "note": _with_note,
    "cause": _with_cause,
    "group": lambda found: ExceptionGroup("Two.", [ValueError(found)]),
    "field": lambda found: ConflictError("No.", found=ValueError(found)),
    "text in a field": lambda found: ConflictError("No.", found=f"{found}"),
}


class Which(Struct):
    failure: str


@operation(access="read")
async def fail(store: Store, request: Which) -> None:
    raise FAILURES[request.failure](FOUND)


CLUB = Schema("club", ACCOUNT, SPOKEN, operations=[fail], space=Space("a club"))


def _text(line: Any) -> str:
    error = line.get("exc_info")
    trace = traceback.format_exception(error) if isinstance(error, BaseException) else ()
    return json.dumps(line, default=str) + "".join(trace)


@pytest.mark.parametrize("failure", FAILURES)
def test_no_response_and_no_log_line_has_a_private_member_of_a_record_in_an_exception(
    failure: str, tmp_path: Path
) -> None:
    """`raise ValueError(account)` logged the pin, and an exception in the field of an error sent it
    over NATS."""
    seen: list[str] = []
    KeyRing.new().save(tmp_path / "ring.json")
    ring = str(tmp_path / "ring.json")
    with capture_logs() as logs:
        with serving(memory(tmp_path), tmp_path, CLUB, key_ring=ring) as served:
            answer = served.client().post("/operations/fail", json={"failure": failure})
            assert answer.status_code in (409, 500)
            seen += [answer.text, str(answer.headers)]

        async def scenario() -> None:
            async with called("memory", tmp_path, CLUB, key_ring=ring) as call:
                body = json.dumps({"failure": failure}).encode()
                reply = await call.client.request("keyhouse.club.ann.fail", body, timeout=30)
                seen.extend([reply.data.decode(), str(reply.headers)])

        asyncio.run(scenario())
    assert "success" in seen[2] and logs
    seen += map(_text, logs)
    assert not [text for text in seen if PLANTED in text]


def test_the_text_of_a_record_has_its_other_members() -> None:
    assert repr(FOUND) == str(FOUND) == "Premium(id='ann', pin=…, email=…, level=1)"
    assert repr([Account(id="bob", pin="1")]) == "[Account(id='bob', pin=…, email=…)]"
    assert FOUND.pin == PLANTED


def test_a_type_that_defines_its_text_keeps_it() -> None:
    assert repr(Spoken("ann", PLANTED)) == "<ann>"
