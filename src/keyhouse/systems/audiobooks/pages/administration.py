"""Pages for those who run the library: operations with live logs, merging, the bin and users."""

import shutil
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Struct

from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http import HtmlPage, Redirect, Route
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.accounts import Accounts
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.library import Library, Member
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.pages.account import checked
from keyhouse.systems.audiobooks.pages.frame import LibraryFrame, at, is_failure, problem
from keyhouse.systems.audiobooks.permissions import (
    DELETE,
    MANAGE_SETTINGS,
    MANAGE_USERS,
    ORGANIZE,
    ROLES,
    SCAN,
)
from keyhouse.systems.audiobooks.records import Operation, OperationLine, User
from keyhouse.systems.audiobooks.routes.accounts import AccountHandlers
from keyhouse.systems.audiobooks.routes.files import FileHandlers, SegmentsQuery
from keyhouse.systems.audiobooks.routes.operations import OperationHandlers
from keyhouse.systems.audiobooks.schema import OPERATION, OPERATION_LOG

__all__ = ["AdministrationPages"]

LISTED: Final = 50
LINES: Final = 500
FORMATS: Final[tuple[str, ...]] = get_args(messages.TranscodeFormat)
Json = dict[str, Any]


class OperationsPage(Struct):
    operations: Sequence[Operation]
    names: dict[str, str]
    roots: Sequence[str]
    pattern: str


class OperationPage(Struct):
    operation: Operation
    by: str
    lines: Sequence[OperationLine]
    is_active: bool


class ScanForm(Struct):
    folder_path: str = ""
    force_update: bool = False


class OrganizeForm(Struct):
    pattern: str = ""
    move: bool = False


class NoForm(Struct):
    pass


class MergeQuery(Struct):
    file_path: str = ""


class MergeForm(Struct):
    file_path: str


class TranscodeForm(Struct):
    format: messages.TranscodeFormat = "m4b"


class MergePage(Struct):
    """`places` is None before the preview."""

    book: Json
    segments: list[Json]
    file_path: str
    roots: Sequence[str]
    has_ffmpeg: bool
    formats: Sequence[str] = FORMATS
    places: list[Json] | None = None
    error: str = ""


class BinPage(Struct):
    books: Sequence[Json]
    total: int


class BinForm(Struct):
    id: Id
    purge: bool = False
    confirmed: bool = False


class UsersPage(Struct):
    users: Sequence[User]
    roles: Sequence[str]


class NewUserForm(Struct):
    username: str
    password: str
    role: str
    email: str = ""


class UserForm(Struct):
    id: Id
    role: str
    status: Literal["active", "disabled"]


class AdministrationPages:
    def __init__(
        self,
        frame: LibraryFrame,
        library: Library,
        accounts: Accounts,
        books: Books,
        files: FileHandlers,
        operations: OperationHandlers,
        pattern: str,
    ) -> None:
        self._frame = frame
        self._library = library
        self._store = library.store
        self._accounts = accounts
        self._users = AccountHandlers(accounts)
        self._books = books
        self._files = files
        self._operations = operations
        self._pattern = pattern

    # Operations

    async def operations(self, caller: Member) -> OperationsPage:
        """The operations, the newest first, and forms that start one."""
        page = await self._store.page(OPERATION, reverse=True, limit=LISTED)
        found = [entry.record for entry in page.entries]
        names = await self._names({each.created_by for each in found})
        return OperationsPage(found, names, self._roots(), self._pattern)

    def _roots(self) -> list[str]:
        return [str(root) for root in self._library.roots]

    async def _names(self, ids: set[str]) -> dict[str, str]:
        users = await self._accounts.users()
        return {user.id: user.username for user in users if user.id in ids}

    async def operation(self, id: str, caller: Member) -> OperationPage:
        """One operation with its log."""
        found = (await self._library.require(OPERATION, "operation", id=id)).record
        page = await self._store.page(OPERATION_LOG, operation_id=id, limit=LINES)
        names = await self._names({found.created_by})
        return OperationPage(
            found,
            names.get(found.created_by, found.created_by),
            [entry.record for entry in page.entries],
            found.status in ("pending", "running"),
        )

    async def scan(self, form: ScanForm, caller: Member) -> Redirect:
        """Start a scan."""
        folder = form.folder_path.strip() or None
        given = messages.ScanBody(folder_path=folder, force_update=form.force_update)
        return _started(await self._operations.scan(msgspec.json.encode(given), caller))

    async def organize(self, form: OrganizeForm, caller: Member) -> Redirect:
        """Show where files would be moved, or move them."""
        given = messages.OrganizeBody(dry_run=not form.move, pattern=form.pattern.strip() or None)
        return _started(await self._operations.organize(msgspec.json.encode(given), caller))

    async def prune(self, form: NoForm, caller: Member) -> Redirect:
        """Delete old playback events."""
        return _started(await self._operations.prune(caller))

    async def cancel(self, id: str, form: NoForm, caller: Member) -> Redirect:
        """Cancel an operation, or delete one that has ended."""
        reply = await self._operations.cancel(id)
        return Redirect(at("operations") if reply.status == 204 else at("operations", id))

    # Merging

    async def merge_page(self, id: str, query: MergeQuery, caller: Member) -> MergePage:
        """Choose a file, and see each listener's place before and after."""
        page = await self._merge(id, query.file_path, caller)
        if query.file_path:
            body = messages.MergeBody(query.file_path)
            try:
                reply = await self._files.merge(id, body, messages.DryRunQuery(True), caller)
                page.places = await self._places(reply.body.data["items"], page.segments)
            except KeyhouseError as error:
                if is_failure(error):
                    raise
                page.error = problem(error)
        return page

    async def _merge(self, id: str, file_path: str, caller: Member) -> MergePage:
        book = await self._books.show((await self._books.get(id)).record)
        found = (await self._files.segments(id, SegmentsQuery(), caller)).data.items
        has_ffmpeg = shutil.which("ffmpeg") is not None
        return MergePage(book, [dict(each) for each in found], file_path, self._roots(), has_ffmpeg)

    async def _places(self, places: Sequence[Any], segments: list[Json]) -> list[Json]:
        names = await self._names({place.user_id for place in places})
        numbers = {each["id"]: number for number, each in enumerate(segments, 1)}
        return [
            {
                **msgspec.to_builtins(place),
                "name": names.get(place.user_id, place.user_id),
                "file": numbers.get(place.old_segment_id, ""),
            }
            for place in places
        ]

    async def merge(self, id: str, form: MergeForm, caller: Member) -> HtmlPage | Redirect:
        """Merge the files of a book into one."""
        body = messages.MergeBody(form.file_path)
        try:
            return _started(await self._files.merge(id, body, messages.DryRunQuery(), caller))
        except KeyhouseError as error:
            if is_failure(error):
                raise
            page = await self._merge(id, form.file_path, caller)
            page.error = problem(error)
            return await self._frame.render("merge.html", caller, page, status=error.status)

    async def transcode(self, id: str, form: TranscodeForm, caller: Member) -> HtmlPage | Redirect:
        """Convert the files of a book to one."""
        body = messages.TranscodeBody(id, form.format)
        try:
            return _started(await self._operations.transcode(body, caller))
        except KeyhouseError as error:
            if is_failure(error):
                raise
            page = await self._merge(id, "", caller)
            page.error = problem(error)
            return await self._frame.render("merge.html", caller, page, status=error.status)

    # The bin

    async def bin(self, caller: Member) -> BinPage:
        """The books in the bin."""
        found = (await self._books.binned(LISTED, None)).data
        return BinPage(found.items, found.total or 0)

    async def empty(self, form: BinForm, caller: Member) -> Redirect:
        """Restore a book, or delete it for good."""
        if not form.purge:
            await self._books.restore(form.id, lambda revision: None)
        elif not form.confirmed:
            raise UsageError("Tick the box to delete the book for good.")
        else:
            await self._books.purge(form.id, lambda revision: None)
        return Redirect(at("bin"))

    # Users

    async def users(self, caller: Member) -> UsersPage:
        """The users and their roles."""
        return UsersPage(await self._accounts.users(), sorted(ROLES))

    async def create_user(self, form: NewUserForm, caller: Member) -> Redirect:
        """Create a user."""
        body = checked(
            messages.UserBody,
            username=form.username,
            password=form.password,
            email=form.email or None,
            roles=[form.role],
        )
        await self._users.create_user(body, caller)
        return Redirect(at("users"))

    async def change_user(self, form: UserForm, caller: Member) -> Redirect:
        """Change the role and the status of a user."""
        body = messages.UserPatch(roles=[form.role], status=form.status, email=UNSET)
        await self._users.change_user(form.id, body, caller)
        return Redirect(at("users"))

    def routes(self, frame: LibraryFrame) -> list[Route]:
        one = "/operations/{id}"
        return [
            frame.page("/operations", self.operations, "operations.html", scope=SCAN),
            frame.page(one, self.operation, "operation.html", scope=SCAN),
            frame.form("/operations/scan", self.scan, scope=SCAN),
            frame.form("/operations/organize", self.organize, scope=ORGANIZE),
            frame.form("/operations/prune", self.prune, scope=MANAGE_SETTINGS),
            frame.form(f"{one}/cancel", self.cancel, scope=SCAN),
            frame.page("/books/{id}/merge", self.merge_page, "merge.html", scope=ORGANIZE),
            frame.form("/books/{id}/merge", self.merge, scope=ORGANIZE),
            frame.form("/books/{id}/transcode", self.transcode, scope=ORGANIZE),
            frame.page("/bin", self.bin, "bin.html", scope=DELETE),
            frame.form("/bin", self.empty, scope=DELETE),
            frame.page("/users", self.users, "users.html", scope=MANAGE_USERS),
            frame.form("/users", self.create_user, scope=MANAGE_USERS),
            frame.form("/users/change", self.change_user, scope=MANAGE_USERS),
        ]


def _started(reply: Any) -> Redirect:
    return Redirect(at("operations", reply.body.data["id"]))
