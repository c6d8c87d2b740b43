"""The HTTP routes of `auth/`: signing in, and blocking an address."""

from collections.abc import Mapping

from msgspec import UNSET

from keyhouse.errors import RateError
from keyhouse.http import ClientAddress, Response, Route, RouteGroup
from keyhouse_playlist.accounts import messages
from keyhouse_playlist.accounts.address_blocks import AddressBlocks
from keyhouse_playlist.accounts.otp import OneTimeCodes, SignIn
from keyhouse_playlist.accounts.roles import ADMIN, MEMBER
from keyhouse_playlist.accounts.sessions import ChannelMember, MemberSessions
from keyhouse_playlist.errors import AddressBlockedError, IntentError, OtpKeyError, RoleError
from keyhouse_playlist.limits import BLOCK_HOURS_DEFAULT
from keyhouse_playlist.messages import API, Done

__all__ = ["sign_in_routes"]


class SignInHandlers:
    def __init__(
        self, codes: OneTimeCodes, blocks: AddressBlocks, sessions: MemberSessions
    ) -> None:
        self._codes = codes
        self._blocks = blocks
        self._sessions = sessions

    async def request(
        self, body: messages.OtpRequestBody, client: ClientAddress, headers: messages.CodeHeaders
    ) -> Response[messages.OtpSent]:
        """Send a code to a user of the channel. The answer is the same for every name. Its cookie
        gives the client its own three guesses."""
        cookie = await self._codes.request(
            body.username, client, headers.user_agent, headers.cookie
        )
        return Response(messages.OtpSent(), headers=(cookie,))

    async def verify(
        self, body: messages.OtpVerifyBody, client: ClientAddress, headers: messages.CodeHeaders
    ) -> Response[messages.OtpResult]:
        """Sign in with a code. The session is in a cookie, whose Max-Age is its lifetime."""
        outcome = await self._codes.verify(body.username, body.otp, client, headers.cookie)
        return Response(_result(outcome), headers=outcome.cookies)

    async def block(
        self, body: messages.IpBlockBody, client: ClientAddress, caller: ChannelMember
    ) -> messages.IpBlocked:
        """Block one's own address after a code that nobody requested, or any address as an
        admin."""
        if body.ip is None:
            return messages.IpBlocked(await self._blocks.block_self(client, body.hours))
        if not caller.username:
            raise RoleError("Only admins may block other addresses.")
        caller.require(ADMIN)
        return messages.IpBlocked(await self._blocks.block(body.ip, body.hours))

    async def logout(self, caller: ChannelMember, client: ClientAddress) -> Response[Done]:
        """Sign out. Succeeds if nobody is signed in."""
        if not caller.username:  # perhaps a page of another site, whose request has no cookie
            return Response(Done())
        cookie = await self._sessions.end(caller, client)
        return Response(Done(), headers=(cookie,))

    async def session(self, caller: ChannelMember) -> messages.SessionReply:
        """Return who is signed in, with the role of this moment."""
        return messages.SessionReply(caller.username, caller.role, caller.expires_at)


def _result(outcome: SignIn) -> messages.OtpResult:
    match outcome.status:
        case "ok":
            return messages.OtpResult("ok", role=outcome.role or UNSET)
        case "invalid":
            return messages.OtpResult("invalid", attempts_remaining=outcome.attempts_remaining)
        case "locked":
            return messages.OtpResult("locked", retry_after_seconds=outcome.retry_after_seconds)
        case _:
            return messages.OtpResult(
                "unrequested", can_block_ip=True, default_block_hours=BLOCK_HOURS_DEFAULT
            )


def sign_in_routes(
    codes: OneTimeCodes, blocks: AddressBlocks, sessions: MemberSessions
) -> Mapping[str, Route]:
    on = SignInHandlers(codes, blocks, sessions)
    api = RouteGroup(f"{API}/auth", tag="sign-in")
    return {
        "otp_request": api.post(
            "/otp/request",
            on.request,
            problems=[RateError, AddressBlockedError],
            example={"username": "TacoBelmont"},
        ),
        "otp_verify": api.post(
            "/otp/verify",
            on.verify,
            problems=[AddressBlockedError, OtpKeyError],
            example={"username": "TacoBelmont", "otp": "7K2QX94B"},
        ),
        "ipblock": api.post(
            "/ipblock",
            on.block,
            scope="",
            problems=[IntentError, RoleError],
            example={"action": "block", "hours": 72},
        ),
        "logout": api.post("/logout", on.logout, scope=""),
        "session": api.get("/session", on.session, scope=MEMBER),
    }
