"""A client of the history service, typed, for Python programs. It needs `httpx`, of the extra
`client`.

    with History("https://api.example/history", "profile-1", token="…") as history:
        now = datetime.now(UTC)
        history.put("1981", asset_type="movie", total_time=6604, progress=2518, at=now)
        for entry in history.entries("resume"):
            print(entry.attr.asset_id, entry.attr.progress_percentage)

A rejected request raises the KeyhouseError of the service, and a failed connection httpx's own
errors. Nothing is retried; an event can be sent again at any time, since the same event twice
changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from keyhouse.service.http_client import HttpClient
from keyhouse_history.facets import FacetType
from keyhouse_history.limits import PAGE_ENTRIES_MAX
from keyhouse_history.schema import HistoryEntry, State

__all__ = [
    "EventOutcome",
    "History",
    "ShowSummary",
    "StoredViewing",
]


class StoredViewing(msgspec.Struct, frozen=True):
    """The stored entry, and whether the event changed anything. `stored` is False if a full profile
    has only newer entries: `entry` is what was not stored."""

    entry: HistoryEntry
    applied: bool
    stored: bool = True


class EventOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The result of one event of several. `asset_id` is what was sent, also if it is not text.
    `stored` is False if a full profile has only newer entries. `error` has `code` and `detail`."""

    asset_id: Any
    applied: bool = False
    stored: bool = True
    error: dict[str, str] | None = None


class ShowSummary(msgspec.Struct, frozen=True):
    """The current entry of a show, and the number of its entries by state."""

    current: HistoryEntry | None
    counts: dict[str, int]


class History(HttpClient):
    """The history of one profile, which the token reaches."""

    def __init__(self, url: str, profile: str, *, token: str, **options: Any) -> None:
        super().__init__(url, token=token, **options)
        self._at = f"/profiles/{quote(profile, safe='')}"

    def put(
        self,
        asset: str,
        *,
        asset_type: str,
        total_time: float,
        progress: float,
        at: datetime | str,
        state: State | None = None,
        ext: Mapping[str, Any] | None = None,
    ) -> StoredViewing:
        """Store a viewing. Without a state, the progress decides; without `ext`, the stored one
        stays."""
        body: dict[str, Any] = {
            "assetType": asset_type,
            "totalTime": total_time,
            "progress": progress,
            "updateTime": at if isinstance(at, str) else at.isoformat(),
        }
        body |= {} if state is None else {"state": state}
        body |= {} if ext is None else {"ext": dict(ext)}
        answer = self.request("PUT", self._asset(asset), json=body)
        return msgspec.json.decode(answer.content, type=StoredViewing)

    def send(self, events: Sequence[Mapping[str, Any]]) -> list[EventOutcome]:
        """Store up to 100 viewings, each as the body of a PUT with its `assetId`."""
        body = {"events": [dict(event) for event in events]}
        results = self.request("POST", f"{self._at}/events", json=body).json()["results"]
        return msgspec.convert(results, list[EventOutcome])

    def get(self, asset: str) -> list[HistoryEntry]:
        """Return the entries of an asset, newest first; NotFoundError if there is none."""
        return _entries(self.request("GET", self._asset(asset)).json()["entries"])

    def entries(
        self, kind: FacetType = "all", *, assets: Sequence[str] = (), page: int = PAGE_ENTRIES_MAX
    ) -> Iterator[HistoryEntry]:
        """Iterate over the entries, newest first: all, or those of some assets."""
        params: dict[str, Any] = {"limit": page} | ({"assets": list(assets)} if assets else {})
        return self._facet(f"asset/{kind}", params)

    def show(
        self, show: str, kind: FacetType = "all", *, seasons: Sequence[str] = ()
    ) -> Iterator[HistoryEntry]:
        """Iterate over the entries of a show, or of some of its seasons, newest first."""
        return self._facet(f"show/{quote(show, safe='')}/{kind}", _seasons(seasons))

    def show_summary(self, show: str, *, seasons: Sequence[str] = ()) -> ShowSummary:
        """Return the current entry of a show, and its counts."""
        path = f"{self._at}/facets/show/{quote(show, safe='')}/all"
        answer = self.request("GET", path, params={"limit": 1, **_seasons(seasons)})
        return msgspec.json.decode(answer.content, type=ShowSummary)

    def sport(
        self,
        sport: str,
        kind: FacetType = "all",
        *,
        series: str | None = None,
        team: str | None = None,
    ) -> Iterator[HistoryEntry]:
        """Iterate over the entries of a sport, or of a series or a team in it, newest first."""
        params = {"series": series, "team": team}
        given = {name: value for name, value in params.items() if value is not None}
        return self._facet(f"sport/{quote(sport, safe='')}/{kind}", given)

    def delete(self, asset: str) -> None:
        """Delete the entries of an asset, if there are any."""
        self.request("DELETE", self._asset(asset))

    def forget(self) -> None:
        """Erase the whole profile. Repeat a call that was interrupted."""
        self.request("DELETE", self._at, timeout=None)

    def reindex(self) -> dict[str, int]:
        """Repair lists and indexes. The token needs the scope `history.service`."""
        counts: dict[str, int] = self.request("POST", f"{self._at}/reindex", timeout=None).json()
        return counts

    def _asset(self, asset: str) -> str:
        return f"{self._at}/assets/{quote(asset, safe='')}"

    def _facet(self, path: str, params: Mapping[str, Any]) -> Iterator[HistoryEntry]:
        for plain in self.items_of(f"{self._at}/facets/{path}", "entries", params):
            yield msgspec.convert(plain, HistoryEntry)


def _entries(plain: Any) -> list[HistoryEntry]:
    return msgspec.convert(plain, list[HistoryEntry])


def _seasons(seasons: Sequence[str]) -> dict[str, Any]:
    return {"season": list(seasons)} if seasons else {}
