"""`keyhouse jobs`: the jobs of a running service, as the Studio lists them."""

from typing import Annotated, Any

import typer

from keyhouse.cli.options import Json, Token, access_token, examples
from keyhouse.cli.output import Part, Report, number, show
from keyhouse.errors import UsageError


@examples(
    "keyhouse jobs --store http://localhost:8080",
    "keyhouse jobs 01JCXQ0Z3V8B6N4M2K1H0G9F8E --json",
)
def jobs(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="A job, to see its log.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", "-s", metavar="URL", help="The service: http://host:8080 [KEYHOUSE_STORE]"
        ),
    ] = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """List the jobs of a running service, or show one with its log.

    Lists verifications, repairs and deletions that operators started in the Studio, and migrations,
    sweeps and moves under way. The token is an operator's: `keyhouse token --operator`.
    """
    page = _page(job, store, access_token(token))
    show(page, _list if job is None else _one, json=json)


def _page(job: str | None, store: str | None, token: str | None) -> dict[str, Any]:
    from keyhouse.advice import service_url
    from keyhouse.cli.target import find_service_url
    from keyhouse.service.http_client import HttpClient, translated

    service = find_service_url(store)
    if service is None:
        raise UsageError("Name the service: --store http://host:8080.")
    if token is None:
        raise UsageError("Give an operator's token: `keyhouse token --operator` makes one.")
    with translated(), HttpClient(service_url(service, "/studio"), token=token) as client:
        path, query = ("/jobs.json", {}) if job is None else ("/job.json", {"id": job})
        page: dict[str, Any] = client.request("GET", path, params=query).json()
        return page


def _list(page: dict[str, Any]) -> Report:
    started = [
        (each["id"], each["type"], _state(each), each["created_by"], f"{each['current']:,}")
        for each in page["jobs"]
    ]
    under_way = [
        (
            f"{each['system']} / {each['space']}",
            each["name"],
            "running" if each["is_running"] else "interrupted",
            number(each["done"], "record"),
        )
        for each in page["store_jobs"]
    ]
    systems = [
        (
            each["system"],
            f"{number(each['sweeps'], 'sweep')}, {number(each['swept'], 'row')} deleted",
            f"a move from {each['move_from']} is not finished" if each["move_from"] else "",
        )
        for each in page["systems"]
    ]
    return Report(
        "Jobs",
        "" if started or under_way else "No job was started, and none is under way.",
        [
            Part("Started in the Studio", started),
            Part("Under way in the stores", under_way),
            Part("Sweeps and moves", systems),
        ],
    )


def _one(page: dict[str, Any]) -> Report:
    job = page["job"]
    done = f"{job['current']:,}" + (f" of {job['total']:,}" if job["total"] else "")
    return Report(
        f"{job['type']} {job['id']}",
        f"{_state(job)}, {done} done.",
        [Part("Log", [(line["at"], line["level"], line["message"]) for line in page["lines"]])],
    )


def _state(job: dict[str, Any]) -> str:
    return "cancelled" if job["error"] == "cancelled" else str(job["status"])
