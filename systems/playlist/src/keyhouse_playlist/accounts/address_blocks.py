"""Blocked addresses. An address is blocked together with its /64 if it is of IPv6."""

from typing import Final, Literal

from keyhouse.errors import UsageError
from keyhouse.http import ClientAddress, canonical_address
from keyhouse.store import Transaction
from keyhouse_playlist.errors import AddressBlockedError, IntentError
from keyhouse_playlist.limits import OTP_SECONDS
from keyhouse_playlist.schema import IP_BLOCK, IP_BLOCK_INTENT, IpBlock, IpBlockIntent
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["AddressBlocks"]

Reason = Literal["otp_unsolicited", "otp_abuse", "admin_action"]
SELF: Final = "otp_unsolicited"


class AddressBlocks:
    def __init__(self, stores: PlaylistStores) -> None:
        self._stores = stores
        self._store = stores.auth

    async def reject_blocked(self, client: ClientAddress, *, is_known: bool) -> None:
        """Raise AddressBlockedError if the client's address, or its network, is blocked. A block
        that a client has asked for is not for the known devices of others at its address."""
        keys = [{"ip": each} for each in _spellings(client)]
        for block in await self._store.get_many(IP_BLOCK, keys, unreadable="skip"):
            if block is not None and not (is_known and block.reason == SELF):
                raise AddressBlockedError(
                    "Requests from this address are blocked.",
                    blocked_until=block.blocked_until,
                    retry_after=max(1, self._stores.seconds_until(block.blocked_until)),
                )

    async def intend(self, client: ClientAddress) -> None:
        """Remember that the client was offered to block its own address."""
        if client.address:
            intent = IpBlockIntent(
                created_at=self._stores.now_text(),
                expires_at=self._stores.now_text(OTP_SECONDS),
            )
            await self._store.put(IP_BLOCK_INTENT, intent, ip=client.address)

    async def block_self(self, client: ClientAddress, hours: int) -> str:
        """Block the client's own address, once, after it was offered to. Returns the end."""
        if not client.address:
            raise UsageError("The address of this client is unknown.")

        async def work(tx: Transaction) -> str:
            if await tx.get(IP_BLOCK_INTENT, ip=client.address) is None:
                raise IntentError(
                    "Blocking one's own address is offered after a code that was never requested,"
                    " for five minutes."
                )
            await tx.delete(IP_BLOCK_INTENT, ip=client.address)
            return await self._put(tx, client, hours, SELF)

        return await self._store.transact(work)

    async def block(self, address: str, hours: int) -> str:
        """Block any address, for an admin. Returns the end."""
        canonical = canonical_address(address.strip())
        network = f"{canonical}/64" if ":" in canonical else canonical

        async def work(tx: Transaction) -> str:
            return await self._put(tx, ClientAddress(canonical, network), hours, "admin_action")

        return await self._store.transact(work)

    async def _put(self, tx: Transaction, client: ClientAddress, hours: int, reason: Reason) -> str:
        until = self._stores.now_text(hours * 3_600)
        block = IpBlock(blocked_until=until, reason=reason, created_at=self._stores.now_text())
        for each in _spellings(client):
            if reason == SELF:
                current = await tx.get(IP_BLOCK, ip=each)
                if current is not None and current.reason != SELF:
                    continue  # an admin's block holds for more clients
            await tx.put(IP_BLOCK, block, ip=each)
        return until


def _spellings(client: ClientAddress) -> list[str]:
    """Return the address, and the /64 of an IPv6 address."""
    if not client.address:
        return []
    return list(dict.fromkeys((client.address, client.network)))
