"""Upkeep of a space: verify and repair, migrate, build derived rows, sweep."""

from typing import Literal

import msgspec

from keyhouse.auth import Caller
from keyhouse.http import Redirect
from keyhouse.studio.catalog import SystemCatalog
from keyhouse.studio.job_work import JobInput
from keyhouse.studio.jobs import Jobs
from keyhouse.studio.page_routes import require_unlocked
from keyhouse.studio.settings import ADMIN
from keyhouse.studio.store_jobs import UpkeepState, space_state


class UpkeepPage(msgspec.Struct):
    system: str
    engine: str
    space: str
    state: UpkeepState


class UpkeepForm(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["verify", "repair", "migrate", "index", "sweep"]


class Upkeep:
    def __init__(self, catalog: SystemCatalog, jobs: Jobs) -> None:
        self._catalog = catalog
        self._jobs = jobs

    async def page(self, system: str, space: str, caller: Caller) -> UpkeepPage:
        """Verify a space, and repair what is found; its version and its derived rows."""
        served = self._catalog.system(system)
        stores = self._catalog.stores(served, space)
        return UpkeepPage(system, served.engine, space, await space_state(stores))

    async def start(self, system: str, space: str, form: UpkeepForm, caller: Caller) -> Redirect:
        """Start a job. All but a verification need an unlocked session."""
        if form.action != "verify":
            require_unlocked(caller, ADMIN)
        self._catalog.stores(self._catalog.system(system), space)
        return await self._jobs.submit(form.action, JobInput(system, space), caller)
