"""Pages for those who run the library: operations with live logs, merging, the bin and users."""

import shutil
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict

from keyhouse.errors import KeyhouseError
from keyhouse.http import Redirect, Route
from keyhouse.service.pages import PageReply
from keyhouse_audiobooks.accounts.messages import UserBody, UserPatch
from keyhouse_audiobooks.accounts.permissions import (
    DELETE,
    MANAGE_SETTINGS,
    MANAGE_USERS,
    ORGANIZE,
    ROLES,
    SCAN,
)
from keyhouse_audiobooks.books.messages import ShownBook
from keyhouse_audiobooks.files.messages import (
    MovedPlace,
    OrganizeBody,
    ScanBody,
    ShownSegment,
    TranscodeFormat,
)
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.library import Library, Member
from keyhouse_audiobooks.lists import PageQuery
from keyhouse_audiobooks.messages import Id
from keyhouse_audiobooks.records import Operation, OperationLine, User
from keyhouse_audiobooks.web.frame import (
    ConfirmForm,
    LibraryFrame,
    at,
    checked,
    is_failure,
    problem,
)

__all__ = ["AdministrationPages"]

LISTED: Final = 50
LINES: Final = 500
FORMATS: Final[tuple[str, ...]] = get_args(TranscodeFormat)


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
    format: TranscodeFormat = "m4b"


class PlaceLine(MovedPlace, kw_only=True):
    """A place with the name of the listener, and the number of the file."""

    name: str
    file: int | str


class MergePage(Struct):
    """`places` is None before the preview."""

    book: ShownBook
    segments: Sequence[ShownSegment]
    file_path: str
    roots: Sequence[str]
    has_ffmpeg: bool
    formats: Sequence[str] = FORMATS
    places: Sequence[PlaceLine] | None = None
    error: str = ""


class BinPage(Struct):
    books: Sequence[ShownBook]
    total: int


class BinForm(ConfirmForm, kw_only=True):
    id: Id
    purge: bool = False


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
    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of

    # Operations

    async def operations(self, caller: Member) -> OperationsPage:
        """The operations, the newest first, and forms that start one."""
        library = self._library(caller)
        operations = (await library.operations.list(PageQuery(limit=LISTED))).items
        names = await library.accounts.names({each.created_by for each in operations})
        return OperationsPage(operations, names, _roots(library), library.maintenance.pattern)

    async def operation(self, id: str, caller: Member) -> OperationPage:
        """One operation with its log."""
        library = self._library(caller)
        operation = await library.operations.get(id)
        names = await library.accounts.names({operation.created_by})
        return OperationPage(
            operation,
            names.get(operation.created_by, operation.created_by),
            (await library.operations.lines(id, limit=LINES)).items,
            operation.status in ("pending", "running"),
        )

    async def scan(self, form: ScanForm, caller: Member) -> Redirect:
        """Start a scan."""
        body = ScanBody(
            folder_path=form.folder_path.strip() or None, force_update=form.force_update
        )
        return _started(await self._library(caller).operations.start_scan(body, caller))

    async def organize(self, form: OrganizeForm, caller: Member) -> Redirect:
        """Show where files would be moved, or move them."""
        body = OrganizeBody(dry_run=not form.move, pattern=form.pattern.strip() or None)
        return _started(await self._library(caller).operations.start_organize(body, caller))

    async def prune(self, form: NoForm, caller: Member) -> Redirect:
        """Delete old playback events."""
        return _started(await self._library(caller).operations.start_prune(caller))

    async def cancel(self, id: str, form: NoForm, caller: Member) -> Redirect:
        """Cancel an operation, or delete one that has ended."""
        cancelled = await self._library(caller).operations.cancel(id)
        return Redirect(at("operations") if cancelled is None else at("operations", id))

    # Merging

    async def merge_page(self, id: str, query: MergeQuery, caller: Member) -> MergePage:
        """Choose a file, and see each listener's place before and after."""
        library = self._library(caller)
        page = await self._merge(id, query.file_path, caller)
        if query.file_path:
            try:
                places = await library.merger.preview(id, query.file_path)
            except KeyhouseError as error:
                if is_failure(error):
                    raise
                page.error = problem(error)
            else:
                names = await library.accounts.names({place.user_id for place in places})
                page.places = _place_lines(places, names, page.segments)
        return page

    async def _merge(self, id: str, file_path: str, caller: Member) -> MergePage:
        library = self._library(caller)
        book = await library.books.show((await library.books.get(id)).record)
        segments = (await library.files.segments(id, caller)).items
        has_ffmpeg = shutil.which("ffmpeg") is not None
        return MergePage(book, segments, file_path, _roots(library), has_ffmpeg)

    async def merge(self, id: str, form: MergeForm, caller: Member) -> PageReply | Redirect:
        """Merge the files of a book into one."""
        start = self._library(caller).operations.start_merge(id, form.file_path, caller)
        return await self._start(start, id, form.file_path, caller)

    async def transcode(self, id: str, form: TranscodeForm, caller: Member) -> PageReply | Redirect:
        """Convert the files of a book to one."""
        start = self._library(caller).operations.start_transcode(id, form.format, caller)
        return await self._start(start, id, "", caller)

    async def _start(
        self, start: Awaitable[Operation], id: str, file_path: str, caller: Member
    ) -> PageReply | Redirect:
        try:
            return _started(await start)
        except KeyhouseError as error:
            if is_failure(error):
                raise
            page = await self._merge(id, file_path, caller)
            page.error = problem(error)
            return PageReply("merge.html", page, error.status)

    # The bin

    async def bin(self, caller: Member) -> BinPage:
        """The books in the bin."""
        books = await self._library(caller).books.binned(PageQuery(limit=LISTED))
        return BinPage(books.items, books.total or 0)

    async def empty(self, form: BinForm, caller: Member) -> Redirect:
        """Restore a book, or delete it for good."""
        books = self._library(caller).books
        if not form.purge:
            await books.restore(form.id)
        else:
            form.require("delete the book for good")
            await books.purge(form.id)
        return Redirect(at("bin"))

    # Users

    async def users(self, caller: Member) -> UsersPage:
        """The users and their roles."""
        return UsersPage(await self._library(caller).accounts.users(), sorted(ROLES))

    async def create_user(self, form: NewUserForm, caller: Member) -> Redirect:
        """Create a user."""
        body = checked(
            UserBody,
            username=form.username,
            password=form.password,
            email=form.email or None,
            roles=[form.role],
        )
        await self._library(caller).accounts.create_user(
            body.username, body.password, body.email, body.roles
        )
        return Redirect(at("users"))

    async def change_user(self, form: UserForm, caller: Member) -> Redirect:
        """Change the role and the status of a user."""
        body = UserPatch(roles=[form.role], status=form.status)
        await self._library(caller).accounts.patch_user(form.id, body)
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


def _started(operation: Operation) -> Redirect:
    return Redirect(at("operations", operation.id))


def _roots(library: Library) -> list[str]:
    return [str(root) for root in library.roots]


def _place_lines(
    places: Sequence[MovedPlace], names: Mapping[str, str], segments: Sequence[ShownSegment]
) -> list[PlaceLine]:
    numbers = {each.id: number for number, each in enumerate(segments, 1)}
    return [
        PlaceLine(
            **asdict(place),
            name=names.get(place.user_id, place.user_id),
            file=numbers.get(place.old_segment_id, ""),
        )
        for place in places
    ]
