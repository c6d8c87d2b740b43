"""Saved views: addresses of pages that an operator has named."""

from typing import Final, Literal

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import UsageError
from keyhouse.http import Redirect
from keyhouse.store import Store
from keyhouse.studio.rendering import PATHS, studio_path
from keyhouse.studio.schema import VIEW, SavedView

VIEWS_MAX: Final = 100
"""Most views of one operator."""

NAME_CHARS_MAX: Final = 80
PATH_CHARS_MAX: Final = 4_000


class ViewForm(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["save", "delete"]
    name: str
    path: str = ""


class SavedViews:
    """The views of each operator. They are preferences: a viewer has them too."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, operator: str, below: str = "") -> list[SavedView]:
        """Return the views of an operator in the order of their names, of pages below a path."""
        page = await self._store.page(VIEW, limit=VIEWS_MAX, operator=operator)
        return [entry.record for entry in page.entries if entry.record.path.startswith(below)]

    async def submit(self, form: ViewForm, caller: Caller) -> Redirect:
        """Save or delete a view of the operator."""
        name, path = form.name.strip(), PATHS.local(form.path)
        if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
            raise UsageError("Give the view a name of at most 80 characters.")
        if form.action == "delete":
            await self._store.delete(VIEW, operator=caller.tenant, name=name)
            return Redirect(path or studio_path(""))
        if not path or len(path) > PATH_CHARS_MAX:
            raise UsageError("A view is the address of a page of the Studio.")
        if len(await self.of(caller.tenant)) >= VIEWS_MAX:
            raise UsageError("There are too many views: delete one first.", limit=VIEWS_MAX)
        await self._store.put(VIEW, SavedView(operator=caller.tenant, name=name, path=path))
        return Redirect(path)
