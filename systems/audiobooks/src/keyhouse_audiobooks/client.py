"""A client of the audiobook library's HTTP service, typed, for Python programs. It needs `httpx`,
of the extra `client`.

    with Audiobooks.sign_in("https://books.example/audiobooks", "ann", "correct horse") as library:
        for book in library.books(tag="utopia"):
            print(book.title, library.state(book.id).status)

Replies are the types of the API. A rejected request raises the KeyhouseError of the service, a
position that another device has passed its NewerPlaceError, and a failed connection httpx's own
errors. Nothing is retried.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

import httpx
import msgspec

from keyhouse.errors import KeyhouseError
from keyhouse.service.http_client import HttpClient
from keyhouse_audiobooks.accounts.messages import LoginReply
from keyhouse_audiobooks.books.messages import ShownBook
from keyhouse_audiobooks.errors import LibraryError, NewerPlaceError
from keyhouse_audiobooks.files.messages import ShownOperation, ShownSegment
from keyhouse_audiobooks.listening.messages import PlaybackState, Statistics
from keyhouse_audiobooks.lists import Items
from keyhouse_audiobooks.messages import Data
from keyhouse_audiobooks.records import OperationLine, Status

__all__ = [
    "Audiobooks",
    "NewerPlaceError",
]

T = TypeVar("T")
API: Final = "/api/v1"


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
            login = client._data(LoginReply, "POST", "/auth/login", json=body)
        except BaseException:
            client.close()
            raise
        client.use_token(login.token)
        return client

    # Books

    def books(self, *, page: int = 100, **filters: Any) -> Iterator[ShownBook]:
        """Iterate over the books that match: `author_id`, `tag`, `title_prefix`, `search` and so
        on."""
        params = {**filters, "limit": page}
        while True:
            listed = self._data(Items[ShownBook], "GET", "/books", params=params)
            yield from listed.items
            if listed.cursor is msgspec.UNSET:
                return
            params["cursor"] = listed.cursor

    def book(self, id: str) -> ShownBook:
        """Return a book; NotFoundError if there is none."""
        return self._data(ShownBook, "GET", f"/books/{id}")

    def create_book(self, title: str, **members: Any) -> ShownBook:
        return self._data(ShownBook, "POST", "/books", json={"title": title, **members})

    def change_book(self, id: str, **members: Any) -> ShownBook:
        return self._data(ShownBook, "PATCH", f"/books/{id}", json=members)

    def segments(self, book_id: str) -> Sequence[ShownSegment]:
        return self._data(Items[ShownSegment], "GET", f"/books/{book_id}/segments").items

    def search(self, query: str, *, limit: int = 50) -> Sequence[ShownBook]:
        params = {"q": query, "limit": limit}
        return self._data(Items[ShownBook], "GET", "/search", params=params).items

    # Listening

    def state(self, book_id: str) -> PlaybackState:
        return self._data(PlaybackState, "GET", f"/books/{book_id}/state")

    def save(
        self, book_id: str, segment_id: str, position_seconds: float, **members: Any
    ) -> PlaybackState:
        """Save a position. `members` may have `event_type`, `play_speed`, `based_on` and
        `idempotency_key`. Raises NewerPlaceError if another device has moved on since
        `based_on`: its `state` is that place, to ask the listener where to resume."""
        body = {"segment_id": segment_id, "position_seconds": position_seconds, **members}
        return self._data(PlaybackState, "POST", f"/books/{book_id}/position", json=body)

    def set_status(self, book_id: str, status: Status) -> PlaybackState:
        body = {"status": status}
        return self._data(PlaybackState, "PATCH", f"/books/{book_id}/status", json=body)

    def statistics(self) -> Statistics:
        """Return the signed-in listener's statistics."""
        return self._data(Statistics, "GET", "/stats/me")

    # Operations

    def scan(self, *, folder_path: str | None = None, force_update: bool = False) -> ShownOperation:
        """Start a scan. See `wait`."""
        body = {"folder_path": folder_path, "force_update": force_update}
        return self._data(ShownOperation, "POST", "/operations/scan", json=body)

    def operation(self, id: str) -> ShownOperation:
        return self._data(ShownOperation, "GET", f"/operations/{id}")

    def wait(self, id: str, *, poll_seconds: float = 0.2) -> ShownOperation:
        """Wait until an operation has ended, and return it."""
        while (operation := self.operation(id)).status in ("pending", "running"):
            time.sleep(poll_seconds)
        return operation

    def log(self, id: str) -> list[str]:
        """Return the lines of an operation's log."""
        params, messages = {"limit": 500, "after": -1}, []
        path = f"/operations/{id}/logs"
        while lines := self._data(Items[OperationLine], "GET", path, params=params).items:
            messages += [line.message for line in lines]
            params["after"] = lines[-1].seq
        return messages

    def error_of(self, response: httpx.Response) -> KeyhouseError:
        error = super().error_of(response)
        if response.status_code == httpx.codes.CONFLICT:
            with suppress(msgspec.MsgspecError):
                state = msgspec.json.decode(response.content, type=LibraryError).data
                if state is not msgspec.UNSET:
                    return NewerPlaceError(error.sentence, state=state)
        return error

    def _data(self, kind: type[T], method: str, path: str, **options: Any) -> T:
        reply = self.request(method, API + path, **options)
        decoded: Data[T] = msgspec.json.decode(reply.content, type=Data[kind])  # type: ignore[valid-type]
        return decoded.data
