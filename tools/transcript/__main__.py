"""`python -m tools.transcript OUT [--source FOLDER] [--only NAME,…]`: record a version, by its
`src`; `--compare A B`: print what differs."""

import argparse
import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
import nats.errors

from tools.transcript import generated, schema, script
from tools.transcript.client import Recorder
from tools.transcript.comparison import compare
from tools.transcript.server import ROOT, Server, serving

HERE = Path(__file__).parent


async def _rosey(recorder: Recorder) -> None:
    await schema.rosey_requests(recorder)


async def _kinds(recorder: Recorder) -> None:
    await schema.schema_requests(recorder)
    _tokens(recorder, "ann")
    await generated.route_requests(recorder, "kinds", "all", ("-", "bad", "reader", "none"), {})


async def _server(recorder: Recorder) -> None:
    for path in SERVER_PATHS:
        for who in ("-", "visitor@"):
            for method in ("GET", "POST", "OPTIONS"):
                await recorder.http(who, method, path)


def _tokens(recorder: Recorder, tenant: str) -> None:
    recorder.values |= {
        "all": schema.token(tenant),
        "reader": schema.token(tenant, "read"),
        "none": schema.token(tenant, ""),
        "other": schema.token("somebody"),
        "bad": "x.y.z",
    }


def _scripted(name: str, strong: str, others: tuple[str, ...], fields: dict[str, str]) -> Any:
    async def play(recorder: Recorder) -> None:
        _tokens(recorder, "ann")
        await script.play(recorder, HERE / f"{name}.txt")
        await generated.route_requests(recorder, name, strong, others, fields)
        late = HERE / f"{name}_end.txt"
        if late.exists():
            await script.play(recorder, late)

    return play


SERVER_PATHS = (
    "/",
    "/docs",
    "/health",
    "/ready",
    "/openapi.json",
    "/favicon.ico",
    "/nothing",
    "/assets/keyhouse.js",
    "/assets/pages.css",
    "/assets/nothing",
)


async def _studio(recorder: Recorder) -> None:
    for name, scopes in {
        "operator": [],
        "looker": ["--scope", "studio:read"],
    }.items():
        arguments = ["token", "--operator", "--data", "data", *scopes]
        recorder.values[name] = recorder.server.printed(*arguments)
    await _scripted(
        "studio",
        "operator",
        ("-", "bad", "looker"),
        {"system": "kinds", "space": "ann", "record": "recipe"},
    )(recorder)


UNKNOWN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
PARTS = {
    "server": _server,
    "rosey": _rosey,
    "kinds": _kinds,
    "streamkit": _scripted("streamkit", "all", ("-", "bad", "reader", "none"), {"type": "notes"}),
    "history": _scripted(
        "history", "all", ("-", "bad", "reader", "none", "other"), {"profile": "ann", "type": "all"}
    ),
    "audiobooks": _scripted(
        "audiobooks",
        "ann",
        ("-", "bad", "bob"),
        {"id": UNKNOWN, "bookmark_id": UNKNOWN, "book_id": UNKNOWN},
    ),
    "playlist": _scripted("playlist", "ada", ("-", "bad", "bob"), {}),
    "studio": _studio,
}


async def _robot(server: Server) -> Any:
    """Return a connection that may use the commands of playlist."""
    url = server.printed("nats-user", "robot", "--data", "data") or server.nats
    for _ in range(50):
        with suppress(nats.errors.Error):
            return await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=1)
        await asyncio.sleep(0.2)
    raise TimeoutError(url)


async def record(server: Server, parts: list[str]) -> list[dict[str, Any]]:
    bus = await nats.connect(server.nats)
    robot = await _robot(server)
    recorder = Recorder(server, bus, robot)
    try:
        for part in parts:
            recorder.section = part
            for path in () if part == "server" else ("openapi.json", "docs", "", "nothing"):
                for who in ("-", "visitor@"):
                    await recorder.http(who, "GET", f"/{part}/{path}")
            await PARTS[part](recorder)
            print(part, len(recorder.lines), file=sys.stderr)
    finally:
        await recorder.close()
        await bus.close()
        await robot.close()
    return recorder.lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--examples", type=int, default=2)
    parser.add_argument("--compare", nargs=2, type=Path)
    given = parser.parse_args()
    if given.compare:
        raise SystemExit(bool(compare(given.compare[0], given.compare[1], given.examples)))
    with serving(given.source.resolve()) as server:
        lines = asyncio.run(record(server, given.only.split(",")))
    given.out.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))


if __name__ == "__main__":
    main()
