"""Routes of playlists and marathons."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta

from keyhouse.errors import DocumentError, NotFoundError, RecordError, RevisionError
from keyhouse.http import Conditions, Response, ResponseSpec, Route, RouteGroup, decode_optional
from keyhouse.systems.playlist import messages
from keyhouse.systems.playlist.errors import (
    NameTakenError,
    NewerDocumentError,
    PatternError,
    PlaylistsFullError,
    RoleError,
)
from keyhouse.systems.playlist.marathons import Marathons
from keyhouse.systems.playlist.playlists import SavedPlaylists
from keyhouse.systems.playlist.routes.prefix import API
from keyhouse.systems.playlist.sessions import ChannelMember, MemberSessions

__all__ = ["playlist_routes"]

Id = Annotated[str, Meta(min_length=1, examples=["6f1c1c1e-7a51-4f0e-9c5d-2f0c9d9c4a11"])]


class PlaylistRouteHandlers:
    def __init__(
        self, playlists: SavedPlaylists, marathons: Marathons, sessions: MemberSessions
    ) -> None:
        self._playlists = playlists
        self._marathons = marathons
        self._sessions = sessions

    async def list_all(
        self, query: messages.PlaylistsQuery, caller: ChannelMember | None
    ) -> messages.PlaylistList:
        """List playlists, the one that was changed last first."""
        self._sessions.check_reader(caller)
        if query.mine and caller is None:
            return messages.PlaylistList(0, [])
        mine = caller if query.mine else None
        found = await self._playlists.listed(created_by=mine, search=query.search)
        return messages.PlaylistList(len(found), found)

    async def create(
        self, body: messages.CreateBody, caller: ChannelMember
    ) -> Response[messages.Created]:
        """Create a playlist. Items that the catalog does not know may be saved."""
        caller.require_writer()
        made = await self._playlists.create(body.name, body.items, caller)
        return _created(made.playlist_id, made.name)

    async def get(
        self, id: Id, caller: ChannelMember | None
    ) -> Response[messages.PlaylistDocument]:
        """Return a playlist, with title and duration of its items from the catalog."""
        self._sessions.check_reader(caller)
        stored = await self._playlists.read(id)
        return Response(await self._playlists.shown(stored), etag=stored.revision)

    async def replace(
        self, id: Id, body: messages.ReplaceBody, caller: ChannelMember, conditions: Conditions
    ) -> Response[messages.PlaylistDocument]:
        """Change a playlist. With `If-Match`: only if its ETag is still that one."""
        caller.require_writer()
        stored = await self._playlists.replace(id, body.name, body.items, caller, conditions)
        document = await self._playlists.shown(stored)
        return Response({**document, "status": "ok"}, etag=stored.revision)

    async def delete(self, id: Id, caller: ChannelMember, conditions: Conditions) -> messages.Done:
        """Delete a playlist."""
        caller.require_writer()
        await self._playlists.delete(id, caller, conditions)
        return messages.Done()

    async def fork(self, id: Id, body: bytes, caller: ChannelMember) -> Response[messages.Created]:
        """Copy a playlist. The body may be empty, or have a name."""
        caller.require_writer()
        made = await self._playlists.fork(id, _fork_name(body), caller)
        return _created(made.playlist_id, made.name)

    # Marathons

    async def preview(
        self, body: messages.MarathonBody, caller: ChannelMember | None
    ) -> messages.MarathonReply:
        """Return the items of a marathon in order, without saving it."""
        self._sessions.check_reader(caller)
        made = await self._marathons.build(body)
        shown = [messages.MarathonItem(item.video_id, item.title) for item in made.items]
        seed = made.seed if body.method == "shuffle" else UNSET
        return messages.MarathonReply(shown, made.warnings, seed)

    async def save_marathon(
        self, body: messages.SaveMarathonBody, caller: ChannelMember
    ) -> Response[messages.Created]:
        """Save a marathon as a playlist."""
        caller.require_writer()
        if body.name is UNSET:
            raise RecordError("The playlist needs a name.", field="name")
        marathon = await self._marathons.build(body)
        given = [messages.ItemBody(item.video_id, item.title or UNSET) for item in marathon.items]
        made = await self._playlists.create(str(body.name), given, caller)
        return _created(made.playlist_id, made.name)


def _created(id: str, name: str) -> Response[messages.Created]:
    location = (("Location", f"{API.removeprefix('/')}/playlists/{id}"),)
    return Response(messages.Created(id, name), status=201, headers=location)


def _fork_name(body: bytes) -> str | None:
    return decode_optional(body, messages.ForkBody).name if body.strip() else None


def playlist_routes(
    playlists: SavedPlaylists, marathons: Marathons, sessions: MemberSessions
) -> Mapping[str, Route]:
    on = PlaylistRouteHandlers(playlists, marathons, sessions)
    created = {201: ResponseSpec(type=messages.Created, about="Created.")}
    new = [NameTakenError, NewerDocumentError, PlaylistsFullError, RoleError]
    changed = [NotFoundError, NewerDocumentError, RevisionError, RoleError]
    tag = {"ETag": "State of the playlist, for If-Match and If-None-Match."}
    document = {200: ResponseSpec(type=dict[str, Any], about="The playlist.", headers=tag)}
    items = [{"video_id": "8FnmbsrWl"}]
    sources = [{"playlist_id": "6f1c1c1e"}, {"playlist_id": "91d0a7b2"}]
    mixed = {"sources": sources, "method": "interleave", "interleave_pattern": "A2 B"}

    api = RouteGroup(API, scope="", tag="playlists")
    return {
        "playlists_list": api.get("/playlists", on.list_all),
        "playlists_create": api.post(
            "/playlists",
            on.create,
            replies=created,
            problems=new,
            example={"name": "Halloween Marathon", "items": items},
        ),
        "playlists_get": api.get(
            "/playlists/{id}", on.get, replies=document, problems=[NotFoundError]
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
        "marathon_preview": api.post(
            "/marathons/preview",
            on.preview,
            problems=[NotFoundError, PatternError],
            example=mixed,
            tag="marathons",
        ),
        "marathon_preview_alias": api.post(
            "/marathon/generate",
            on.preview,
            problems=[NotFoundError, PatternError],
            example=mixed,
            tag="marathons",
        ),
        "marathon_save": api.post(
            "/marathons",
            on.save_marathon,
            replies=created,
            problems=[NotFoundError, PatternError, *new],
            example={"name": "Both", **mixed},
            tag="marathons",
        ),
        "marathon_save_alias": api.post(
            "/marathon/save",
            on.create,
            replies=created,
            problems=new,
            example={"name": "Both", "items": items},
            tag="marathons",
        ),
    }
