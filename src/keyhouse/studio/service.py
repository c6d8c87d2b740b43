"""The Studio as a service: its pages, sessions, journal and jobs."""

from pathlib import Path
from typing import Final

from keyhouse.auth import jwt_auth
from keyhouse.engine import Engine
from keyhouse.http import ResponseSpec, Route, file_route
from keyhouse.http.metrics import HttpMetrics
from keyhouse.http.static import VENDOR
from keyhouse.service.accounts.login_guard import LoginGuard
from keyhouse.service.host import ServiceHost
from keyhouse.service.rates import page_rates
from keyhouse.service.secret_ids import SecretIds, secret_id
from keyhouse.service.spec import ServiceSpec
from keyhouse.store import Store
from keyhouse.studio.bulk import Bulk
from keyhouse.studio.catalog import SystemCatalog
from keyhouse.studio.change import Changes
from keyhouse.studio.edit import Edit
from keyhouse.studio.export import Export
from keyhouse.studio.figures import Figures
from keyhouse.studio.job_work import JobWork
from keyhouse.studio.jobs import Jobs
from keyhouse.studio.journal import Journal
from keyhouse.studio.key_page import KeyPages
from keyhouse.studio.login import Login
from keyhouse.studio.overview import Overview, Readiness
from keyhouse.studio.page_routes import PageRoutes
from keyhouse.studio.record_table import RecordTable
from keyhouse.studio.schema import SCHEMA, SPACE
from keyhouse.studio.sessions import Sessions
from keyhouse.studio.settings import (
    ADMIN,
    NAME,
    OPERATOR_PATTERN,
    READ,
    WRITE,
    StudioSettings,
)
from keyhouse.studio.store_jobs import StoreJobs
from keyhouse.studio.tree import Tree
from keyhouse.studio.upkeep import Upkeep

_ASSETS: Final = Path(__file__).parent / "assets"
_EDITOR: Final = "cm-json.min.js"
"""The editor of JSON, which the page of an edit loads when it shows text."""

_BY_TOKEN: Final = (
    "Browse, edit and verify what the systems store. Operators sign in with a token, or with the"
    " link that the service prints when it starts.",
    ["keyhouse token --operator"],
)
_BY_LINK: Final[tuple[str, list[str]]] = (
    "Browse, edit and verify what a store holds. Sign in with the link that `keyhouse studio` has"
    " printed.",
    [],
)


class Studio:
    """The Studio over these systems; `spec` is its service. `engine` holds its own rows; `data` has
    the secret that signs operators' tokens. Without `takes_tokens` only its link signs in."""

    def __init__(
        self,
        catalog: SystemCatalog,
        engine: Engine,
        data: Path,
        settings: StudioSettings,
        readiness: Readiness | None = None,
        *,
        takes_tokens: bool = True,
        host: ServiceHost | None = None,
    ) -> None:
        self._catalog = catalog
        self._address_limit = (
            None if host is None else host.shared_limit(f"addresses:{NAME}", engine)
        )
        store = Store(SCHEMA, engine, SPACE)
        tokens = None
        if takes_tokens:
            tokens = jwt_auth(
                settings, data, system=NAME, tenant_pattern=OPERATOR_PATTERN, clock=engine.clock
            )
        is_shared = host is not None and host.shares(engine)
        ids = {}
        if is_shared and tokens is not None and tokens.secret is not None:
            ids["jwt_secret"] = tokens.secret
        self._secrets = SecretIds(
            engine, NAME, {name: secret_id(each) for name, each in ids.items()}
        )
        self.sessions = Sessions(store, tokens, hours=settings.session_hours)
        self.pages = PageRoutes()
        self.journal = Journal(store, catalog)
        guard = LoginGuard(shared=engine if is_shared else None)
        self._login = Login(self.pages, self.sessions, self.journal, guard)
        self._overview = Overview(catalog, readiness)
        self._tree = Tree(catalog)
        self._table = RecordTable(catalog)
        self._keys = KeyPages(catalog, self.journal, self.sessions)
        self.changes = Changes(catalog, self.journal)
        self._edit = Edit(catalog, self.journal, self.changes, self._login)
        work = JobWork(catalog, self.journal, self.changes)
        self._jobs = Jobs(store, self.journal, StoreJobs(catalog), work.kinds())
        self._upkeep = Upkeep(catalog, self._jobs)
        self._bulk = Bulk(catalog, self._jobs)
        self._figures = Figures(catalog)
        self._export = Export(catalog)

    def show_requests(self, metrics: HttpMetrics) -> None:
        """Show the requests of the app that serves the systems."""
        self._figures.requests = metrics

    def spec(self) -> ServiceSpec:
        about, examples = _BY_TOKEN if self.sessions.takes_tokens else _BY_LINK
        return ServiceSpec(
            name=NAME,
            title="Studio",
            about=about,
            examples=examples,
            routes=self._routes(),
            auth=self.sessions,
            address_rates=page_rates(shared=self._address_limit),
            tasks=[self._jobs.operations.run, self._secrets.run],
        )

    def _routes(self) -> list[Route]:
        page, form, overview = self.pages.page, self.pages.form, self._overview
        return [
            *self.pages.pages.files(_ASSETS),
            file_route(f"/assets/{_EDITOR}", VENDOR / _EDITOR),
            *self._login.routes(),
            *page("/", overview.landing, "landing.html"),
            *page("/journal", self.journal.page, "journal.html"),
            *page("/change", self.journal.change, "change.html"),
            *page("/slow", self._figures.page, "slow.html"),
            *page("/jobs", self._jobs.list_page, "jobs.html"),
            *page("/job", self._jobs.page, "job.html"),
            form("/job", self._jobs.change, scope=ADMIN, locked=False),
            *page("/{system}/", overview.system, "system.html"),
            *page("/{system}/schema", overview.schema, "schema.html"),
            *page("/{system}/{space}/", overview.space, "space.html"),
            *page("/{system}/{space}/tree", self._tree.page, "tree.html"),
            *page("/{system}/{space}/key", self._keys.page, "key.html"),
            *page("/{system}/{space}/edit", self._edit.page, "edit.html"),
            *page("/{system}/{space}/verify", self._upkeep.page, "verify.html"),
            form("/{system}/{space}/verify", self._upkeep.start, scope=ADMIN, locked=False),
            *page("/{system}/{space}/bulk", self._bulk.page, "bulk.html", scope=ADMIN),
            form("/{system}/{space}/bulk", self._bulk.start, scope=ADMIN),
            Route(
                method="GET",
                path="/{system}/{space}/export",
                handler=self._export.download,
                scope=READ,
                replies={200: ResponseSpec(type=bytes, media_type="application/jsonl")},
            ),
            *page("/{system}/{space}/{record}", self._table.page, "record.html"),
            Route(
                method="GET",
                path="/{system}/{space}/live",
                handler=self._keys.live,
                scope=READ,
                listed=False,
            ),
            form("/{system}/{space}/key", self._keys.reveal, scope=ADMIN, locked=False),
            form(
                "/{system}/{space}/edit",
                self._edit.submit,
                scope=READ,
                locked=False,
                has_text=True,
            ),
            form("/journal", self._edit.undo, scope=WRITE),
        ]
