"""A client of the playlist service over HTTP, typed, for Python programs. It needs `httpx`, of the
extra `client`.

    url = "https://tv.example/playlist"
    request = PlaylistClient.request_code(url, "Ada")
    with PlaylistClient.sign_in(url, "Ada", input("Code: "), request=request) as channel:
        found = channel.search("harbour")
        made = channel.create("Harbour night", [item.video_id for item in found.items])
        channel.push(made.playlist_id, "append")

A rejected request raises the KeyhouseError of the service, a code that is not accepted a
CodeRejectedError, and a failed connection httpx's own errors. Nothing is retried.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from keyhouse.errors import TokenError
from keyhouse.service.http_client import HttpClient
from keyhouse_playlist.accounts.messages import OtpResult, SessionReply
from keyhouse_playlist.catalog.messages import Categories, SearchReply
from keyhouse_playlist.catalog.tables.item import CatalogItem
from keyhouse_playlist.channel.messages import (
    ApplyReply,
    CountedItem,
    CountedItems,
    LikeReply,
    NowPlaying,
    QueueReply,
)
from keyhouse_playlist.limits import SEARCH_ITEMS_MAX
from keyhouse_playlist.messages import API
from keyhouse_playlist.playlists.messages import (
    Created,
    MarathonReply,
    PlaylistList,
    PlaylistSummary,
)
from keyhouse_playlist.schema import ApplyMode, Method

__all__ = [
    "CodeRejectedError",
    "PlaylistClient",
]

COOKIE: Final = "kryten_playlist_session"
REQUEST_COOKIE: Final = "kryten_playlist_code"
T = TypeVar("T")


class CodeRejectedError(TokenError):
    """A code that does not sign in. Its fields are the service's reply: `status` is `invalid`, with
    `attempts_remaining`, `locked`, with `retry_after_seconds`, or `unrequested`."""

    code = "unauthorized"


class PlaylistClient(HttpClient):
    """One member's view of a channel. `token` is that of the member's session."""

    # Sign-in

    @classmethod
    def request_code(
        cls, url: str, username: str, *, transport: httpx.BaseTransport | None = None
    ) -> str:
        """Have a code sent to the user. Returns the secret of this request: with it, `sign_in` has
        three guesses, whatever other clients send for the same name."""
        with cls(url, token="none", transport=transport) as client:
            del client._http.headers["Authorization"]
            sent = client.request("POST", f"{API}/auth/otp/request", json={"username": username})
        return str(sent.cookies[REQUEST_COOKIE])

    @classmethod
    def sign_in(
        cls, url: str, username: str, code: str, *, request: str = "", **options: Any
    ) -> Self:
        """Sign in with a code, and return a client with the session's token. `request` is the
        result of `request_code`. Raises CodeRejectedError if the code is not accepted."""
        client = cls(url, token="none", **options)
        del client._http.headers["Authorization"]
        try:
            body = {"username": username, "otp": code}
            if request:
                client._http.cookies.set(REQUEST_COOKIE, request)
            answer = client.request("POST", f"{API}/auth/otp/verify", json=body)
            outcome = msgspec.json.decode(answer.content, type=OtpResult)
            if outcome.status != "ok":
                raise CodeRejectedError(
                    "The code was not accepted.", **msgspec.to_builtins(outcome)
                )
        except BaseException:
            client.close()
            raise
        client.use_token(answer.cookies[COOKIE])
        client._http.cookies.clear()
        return client

    @property
    def token(self) -> str:
        """The token of the session, for a later client."""
        return self._http.headers["Authorization"].removeprefix("Bearer ")

    def session(self) -> SessionReply:
        """Return who is signed in, with the role of this moment."""
        return self._get("/auth/session", SessionReply)

    def sign_out(self) -> None:
        self.request("POST", f"{API}/auth/logout")

    # Catalog

    def search(
        self,
        words: str = "",
        *,
        categories: Sequence[str] = (),
        limit: int = 50,
        offset: int = 0,
        facets: bool = False,
    ) -> SearchReply:
        """Return a page of the items that have all words and categories, best first."""
        params = {
            "q": words,
            "category": list(categories),
            "limit": limit,
            "offset": offset,
            "facets": str(facets).lower(),
        }
        return self._get("/catalog/search", SearchReply, params)

    def items(self, words: str = "", *, categories: Sequence[str] = ()) -> Iterator[CatalogItem]:
        """Iterate over all items that have all words and categories, best first. A catalog that is
        refreshed meanwhile may repeat or leave out some."""
        offset = 0
        while True:
            page = self.search(words, categories=categories, limit=SEARCH_ITEMS_MAX, offset=offset)
            yield from page.items
            offset += len(page.items)
            if not page.items or offset >= page.total:
                return

    def categories(self) -> list[str]:
        return self._get("/catalog/categories", Categories).categories

    def item(self, video_id: str) -> CatalogItem:
        """Return an item of the catalog; NotFoundError if there is none."""
        return self._get(f"/catalog/items/{quote(video_id, safe='')}", CatalogItem)

    # Playlists

    def playlists(self, *, mine: bool = False, search: str = "") -> list[PlaylistSummary]:
        """Return the playlists, the one that was changed last first."""
        params = {"mine": str(mine).lower(), "search": search}
        return self._get("/playlists", PlaylistList, params).playlists

    def playlist(self, id: str) -> dict[str, Any]:
        """Return the document of a playlist; NotFoundError if there is none."""
        return dict(self._get(_playlist(id), dict[str, Any]))

    def create(self, name: str, video_ids: Sequence[str] = ()) -> Created:
        """Save a playlist; ConflictError if the name is taken."""
        body = {"name": name, "items": _items(video_ids)}
        return self._send("POST", "/playlists", Created, body)

    def change(
        self, id: str, *, name: str | None = None, video_ids: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Change the name or the items of a playlist, and return its document."""
        body: dict[str, Any] = {} if name is None else {"name": name}
        body |= {} if video_ids is None else {"items": _items(video_ids)}
        return dict(self._send("PUT", _playlist(id), dict[str, Any], body))

    def delete(self, id: str) -> None:
        self.request("DELETE", API + _playlist(id))

    def fork(self, id: str, name: str | None = None) -> Created:
        """Copy a playlist."""
        body = {} if name is None else {"name": name}
        return self._send("POST", f"{_playlist(id)}/fork", Created, body)

    # Marathons

    def preview(self, playlist_ids: Sequence[str], method: Method, **options: Any) -> MarathonReply:
        """Return the items of a marathon in order. `options` may have `shuffle_seed`,
        `interleave_pattern` and `preserve_episode_order`."""
        body = _marathon(playlist_ids, method, options)
        return self._send("POST", "/marathons/preview", MarathonReply, body)

    def save_marathon(
        self, name: str, playlist_ids: Sequence[str], method: Method, **options: Any
    ) -> Created:
        """Save a marathon as a playlist. See `preview`."""
        body = {"name": name, **_marathon(playlist_ids, method, options)}
        return self._send("POST", "/marathons", Created, body)

    # Channel

    def queue(self) -> QueueReply:
        return self._get("/queue", QueueReply)

    def now_playing(self) -> NowPlaying | None:
        return self._get("/nowplaying", NowPlaying | None)  # type: ignore[arg-type]

    def push(self, playlist_id: str, mode: ApplyMode = "append") -> ApplyReply:
        """Push a playlist to the queue. Returns when all of it was sent; another thread may
        `cancel` it."""
        body = {"playlist_id": playlist_id, "mode": mode}
        return self._send("POST", "/queue/apply", ApplyReply, body, timeout=None)

    def cancel(self, apply_id: str) -> None:
        """Cancel a push; NotFoundError if it does not run."""
        self.request("DELETE", f"{API}/queue/apply/{quote(apply_id, safe='')}")

    def events(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the channel's events, without end: the name, and the data."""
        with self._http.stream("GET", f"{API}/events", timeout=None) as response:
            if not response.is_success:
                response.read()
                self.request("GET", f"{API}/auth/session")  # raises the reason
            name = ""
            for line in response.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, msgspec.json.decode(line.removeprefix("data: "))

    def like(self) -> LikeReply:
        """Like what is playing."""
        return self._send("POST", "/likes/current", LikeReply, {})

    def top_played(self, *, window_days: int = 30, limit: int = 50) -> list[CountedItem]:
        return self._top("/stats/top-played", window_days, limit)

    def top_liked(self, *, window_days: int = 30, limit: int = 50) -> list[CountedItem]:
        return self._top("/stats/top-liked", window_days, limit)

    def _top(self, path: str, window_days: int, limit: int) -> list[CountedItem]:
        params = {"window_days": window_days, "limit": limit}
        return self._get(path, CountedItems, params).items

    def _get(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> T:
        response = self.request("GET", API + path, params=params)
        return msgspec.json.decode(response.content, type=kind)

    def _send(self, method: str, path: str, kind: type[T], body: Any, **options: Any) -> T:
        response = self.request(method, API + path, json=body, **options)
        return msgspec.json.decode(response.content, type=kind)


def _playlist(id: str) -> str:
    return f"/playlists/{quote(id, safe='')}"


def _items(video_ids: Sequence[str]) -> list[dict[str, str]]:
    return [{"video_id": each} for each in video_ids]


def _marathon(
    playlist_ids: Sequence[str], method: Method, options: Mapping[str, Any]
) -> dict[str, Any]:
    return {"sources": [{"playlist_id": id} for id in playlist_ids], "method": method, **options}
