"""A client of the audiobook library's HTTP service, typed, for Python programs. It needs `httpx`,
of the extra `client`.

    with Audiobooks.sign_in("https://books.example/audiobooks", "ann", "correct horse") as library:
        for book in library.books(tag="utopia"):
            print(book["title"], library.state(book["id"]).status)

A rejected request raises a ServiceRequestError, a position that another device has passed a
`NewerPlace` with its state, and a failed connection httpx's own errors. Nothing is retried.
"""

import time
from collections.abc import Iterator
from typing import Any, Final, Self

import httpx
import msgspec

from keyhouse.service.http_client import (
    AbsentError,
    ChangedError,
    ExistsError,
    HttpClient,
    InvalidError,
    ServiceError,
    ServiceRequestError,
    TooMuchError,
    UnauthorizedError,
)
from keyhouse.systems.audiobooks.listening import PlaybackState, Statistics
from keyhouse.systems.audiobooks.records import Operation, Status

__all__ = [
    "AbsentError",
    "Audiobooks",
    "ChangedError",
    "ExistsError",
    "InvalidError",
    "NewerPlace",
    "ServiceError",
    "ServiceRequestError",
    "TooMuchError",
    "UnauthorizedError",
]

API: Final = "/api/v1"
Json = dict[str, Any]


class NewerPlace(Exception):
    """Another device has moved on. `state` is its place: ask the listener where to resume."""

    def __init__(self, state: PlaybackState) -> None:
        super().__init__("Another device has moved on.")
        self.state = state


class Audiobooks(HttpClient):
    """One user's view of a library. `token` is that of a login, or an API key."""

    @classmethod
    def sign_in(
        cls, url: str, username: str, password: str, *, remember: bool = False, **options: Any
    ) -> Self:
        """Sign in, and return a client with the session's token."""
        client = cls(url, token="none", **options)
        body = {"username": username, "password": password, "remember_me": remember}
        try:
            token = client._data("POST", "/auth/login", json=body)["token"]
        except BaseException:
            client.close()
            raise
        client._http.headers["Authorization"] = f"Bearer {token}"
        return client

    # Books

    def books(self, *, page: int = 100, **filters: Any) -> Iterator[Json]:
        """Iterate over the books that match: `author_id`, `tag`, `title_prefix`, `search` and so
        on."""
        params: Json = {**filters, "limit": page}
        while True:
            found = self._data("GET", "/books", params=params)
            yield from found["items"]
            if "cursor" not in found:
                return
            params["cursor"] = found["cursor"]

    def book(self, id: str) -> Json:
        """Return a book; AbsentError if there is none."""
        return dict(self._data("GET", f"/books/{id}"))

    def create_book(self, title: str, **members: Any) -> Json:
        return dict(self._data("POST", "/books", json={"title": title, **members}))

    def change_book(self, id: str, **members: Any) -> Json:
        return dict(self._data("PATCH", f"/books/{id}", json=members))

    def segments(self, book_id: str) -> list[Json]:
        return list(self._data("GET", f"/books/{book_id}/segments")["items"])

    def search(self, query: str, *, limit: int = 50) -> list[Json]:
        return list(self._data("GET", "/search", params={"q": query, "limit": limit})["items"])

    # Listening

    def state(self, book_id: str) -> PlaybackState:
        return self._state(self._data("GET", f"/books/{book_id}/state"))

    def save(
        self, book_id: str, segment_id: str, position_seconds: float, **members: Any
    ) -> PlaybackState:
        """Save a position. `members` may have `event_type`, `play_speed`, `based_on` and
        `idempotency_key`. Raises NewerPlace if another device has moved on since `based_on`."""
        body = {"segment_id": segment_id, "position_seconds": position_seconds, **members}
        path = f"{API}/books/{book_id}/position"
        response = self._http.post(path, json=body)
        if response.status_code == httpx.codes.CONFLICT and "data" in response.json():
            raise NewerPlace(self._state(response.json()["data"]))
        if not response.is_success:
            return self._state(self._data("POST", f"/books/{book_id}/position", json=body))
        return self._state(response.json()["data"])

    def set_status(self, book_id: str, status: Status) -> PlaybackState:
        body = {"status": status}
        return self._state(self._data("PATCH", f"/books/{book_id}/status", json=body))

    def statistics(self) -> Statistics:
        """Return the signed-in listener's statistics."""
        return msgspec.convert(self._data("GET", "/stats/me"), Statistics)

    # Operations

    def scan(self, *, folder_path: str | None = None, force_update: bool = False) -> Operation:
        """Start a scan. See `wait`."""
        body = {"folder_path": folder_path, "force_update": force_update}
        return self._operation(self._data("POST", "/operations/scan", json=body))

    def operation(self, id: str) -> Operation:
        return self._operation(self._data("GET", f"/operations/{id}"))

    def wait(self, id: str, *, poll_seconds: float = 0.2) -> Operation:
        """Wait until an operation has ended, and return it."""
        while (found := self.operation(id)).status in ("pending", "running"):
            time.sleep(poll_seconds)
        return found

    def log(self, id: str) -> list[str]:
        """Return the lines of an operation's log."""
        params: Json = {"limit": 500, "after": -1}
        lines: list[str] = []
        while found := self._data("GET", f"/operations/{id}/logs", params=params)["items"]:
            lines += [line["message"] for line in found]
            params["after"] = found[-1]["seq"]
        return lines

    def _data(self, method: str, path: str, **options: Any) -> Any:
        return self.request(method, API + path, **options).json()["data"]

    def _state(self, plain: Any) -> PlaybackState:
        return msgspec.convert(plain, PlaybackState)

    def _operation(self, plain: Any) -> Operation:
        return msgspec.convert(plain, Operation)
