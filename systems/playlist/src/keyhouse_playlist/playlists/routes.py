"""The HTTP routes of playlists and marathons."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from keyhouse.errors import DocumentError, NotFoundError, RecordError, RevisionError
from keyhouse.http import Conditions, Response, ResponseSpec, Route, RouteGroup, decode_optional
from keyhouse_playlist.accounts.roles import READ, WRITE
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.errors import (
    NameTakenError,
    NewerDocumentError,
    PatternError,
    PlaylistsFullError,
    RoleError,
)
from keyhouse_playlist.messages import API, Done
from keyhouse_playlist.playlists import messages
from keyhouse_playlist.playlists.marathons import Marathons
from keyhouse_playlist.playlists.saved import SavedPlaylists

__all__ = ["playlist_routes"]

Id = Annotated[str, Meta(min_length=1, examples=["6f1c1c1e-7a51-4f0e-9c5d-2f0c9d9c4a11"])]


class PlaylistHandlers:
    def __init__(self, playlists: SavedPlaylists, marathons: Marathons) -> None:
        self._playlists = playlists
        self._marathons = marathons

    async def list_all(
        self, query: messages.PlaylistsQuery, caller: ChannelMember
    ) -> messages.PlaylistList:
        """List playlists, the one that was changed last first."""
        if query.mine and not caller.username:
            return messages.PlaylistList(0, [])
        mine = caller if query.mine else None
        summaries = await self._playlists.listed(created_by=mine, search=query.search)
        return messages.PlaylistList(len(summaries), summaries)

    async def create(
        self, body: messages.CreateBody, caller: ChannelMember
    ) -> Response[messages.Created]:
        """Create a playlist. Items that the catalog does not know may be saved."""
        made = await self._playlists.create(body.name, body.items, caller)
        return _created(made.playlist_id, made.name)

    async def get(self, id: Id, caller: ChannelMember) -> Response[messages.PlaylistDocument]:
        """Return a playlist, with title and duration of its items from the catalog."""
        stored = await self._playlists.read(id)
        return _document(await self._playlists.shown(stored), stored.revision)

    async def replace(
        self,
        id: Id,
        body: messages.ReplaceBody,
        caller: ChannelMember,
        conditions: Conditions,
    ) -> Response[messages.PlaylistDocument]:
        """Change a playlist. With `If-Match`: only if its ETag is still that one."""
        stored = await self._playlists.replace(id, body.name, body.items, caller, conditions)
        document = await self._playlists.shown(stored)
        return _document({**document, "status": "ok"}, stored.revision)

    async def delete(self, id: Id, caller: ChannelMember, conditions: Conditions) -> Done:
        """Delete a playlist."""
        await self._playlists.delete(id, caller, conditions)
        return Done()

    async def fork(self, id: Id, body: bytes, caller: ChannelMember) -> Response[messages.Created]:
        """Copy a playlist. The body may be empty, or have a name."""
        made = await self._playlists.fork(id, _fork_name(body), caller)
        return _created(made.playlist_id, made.name)

    # Marathons

    async def preview(
        self, body: messages.MarathonBody, caller: ChannelMember
    ) -> messages.MarathonReply:
        """Return the items of a marathon in order, without saving it."""
        made = await self._marathons.build(body)
        shown = [messages.MarathonItem(item.video_id, item.title) for item in made.items]
        seed = made.seed if body.method == "shuffle" else UNSET
        return messages.MarathonReply(shown, made.warnings, seed)

    async def save_marathon(
        self, body: messages.SaveMarathonBody, caller: ChannelMember
    ) -> Response[messages.Created]:
        """Save a marathon as a playlist."""
        if body.name is UNSET:
            raise RecordError("The playlist needs a name.", field="name")
        made = await self._marathons.save(str(body.name), body, caller)
        return _created(made.playlist_id, made.name)


def _document(document: dict[str, Any], revision: int) -> Response[messages.PlaylistDocument]:
    """Return a document with all members that a program gave it, in their order."""
    body = msgspec.Raw(msgspec.json.encode(document))
    return Response(body, etag=revision)  # type: ignore[arg-type]  # its JSON is the body


def _created(id: str, name: str) -> Response[messages.Created]:
    location = (("Location", f"{API.removeprefix('/')}/playlists/{id}"),)
    return Response(messages.Created(id, name), status=201, headers=location)


def _fork_name(body: bytes) -> str | None:
    return decode_optional(body, messages.ForkBody).name if body.strip() else None


def playlist_routes(playlists: SavedPlaylists, marathons: Marathons) -> Mapping[str, Route]:
    on = PlaylistHandlers(playlists, marathons)
    created = {201: ResponseSpec(type=messages.Created, about="Created.")}
    new = [NameTakenError, NewerDocumentError, PlaylistsFullError, RoleError]
    changed = [NotFoundError, NewerDocumentError, RevisionError, RoleError]
    tag = {"ETag": "State of the playlist, for If-Match and If-None-Match."}
    shown = ResponseSpec(type=messages.PlaylistDocument, about="The playlist.", headers=tag)
    document = {200: shown}
    items = [{"video_id": "8FnmbsrWl"}]
    sources = [{"playlist_id": "6f1c1c1e"}, {"playlist_id": "91d0a7b2"}]
    mixed = {"sources": sources, "method": "interleave", "interleave_pattern": "A2 B"}
    api = RouteGroup(API, scope=WRITE, tag="playlists")
    mixing = RouteGroup(API, scope=READ, tag="marathons", problems=[NotFoundError, PatternError])
    return {
        "playlists_list": api.get("/playlists", on.list_all, scope=READ),
        "playlists_create": api.post(
            "/playlists",
            on.create,
            replies=created,
            problems=new,
            example={"name": "Halloween Marathon", "items": items},
        ),
        "playlists_get": api.get(
            "/playlists/{id}", on.get, scope=READ, replies=document, problems=[NotFoundError]
        ),
        "playlists_replace": api.put(
            "/playlists/{id}",
            on.replace,
            replies=document,
            problems=[*changed, NameTakenError],
            example={"name": "All Hallows", "items": items},
        ),
        "playlists_delete": api.delete("/playlists/{id}", on.delete, problems=changed),
        "playlists_fork": api.post(
            "/playlists/{id}/fork",
            on.fork,
            replies=created,
            body_type=messages.ForkBody,
            example={"name": "Halloween, longer"},
            problems=[NotFoundError, RecordError, DocumentError, *new],
        ),
        "marathon_preview": mixing.post("/marathons/preview", on.preview, example=mixed),
        "marathon_preview_alias": mixing.post("/marathon/generate", on.preview, example=mixed),
        "marathon_save": mixing.post(
            "/marathons",
            on.save_marathon,
            scope=WRITE,
            replies=created,
            problems=[NotFoundError, PatternError, *new],
            example={"name": "Both", **mixed},
        ),
        "marathon_save_alias": mixing.post(
            "/marathon/save",
            on.create,
            scope=WRITE,
            replies=created,
            problems=new,
            example={"name": "Both", "items": items},
        ),
    }
