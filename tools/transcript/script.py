"""Requests as text, a line each: `WHO METHOD PATH [BODY] [; Header: value]… [-> NAME=MEMBER]`.

A body is JSON, or a form if it starts with `&`. `$name` is a value that an earlier reply gave.
`WHO UNTIL PATH PATTERN` waits; `NATS SUBJECT BODY` is sent over NATS; `LOG NAME PATTERN` takes a
value from the log of the server; `# title` starts a section.
"""

import json
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from tools.transcript.client import Recorder

__all__ = ["play"]

ABSENT: Final = "absent"


async def play(recorder: Recorder, path: Path) -> None:
    prefix = ""
    for line in path.read_text().splitlines():
        if not line.strip():
            continue
        if line.startswith("# "):
            recorder.section = line[2:]
            continue
        who, method, rest = [*line.split(" ", 2), "", ""][:3]
        if who == "PREFIX":
            prefix = method
        elif who == "ROBOT":
            recorder.server.start_robot()
        elif who == "LOG":
            recorder.values[method] = await recorder.until_logged(recorder.fill(rest))
        elif who == "NATS":
            await recorder.nats(method, recorder.fill(rest))
        elif method == "UNTIL":
            target, pattern = rest.split(" ", 1)
            await recorder.until(who, prefix + target, pattern)
        else:
            await _send(recorder, prefix, who, method, rest)


async def _send(recorder: Recorder, prefix: str, who: str, method: str, rest: str) -> None:
    rest, _, taken = rest.partition(" -> ")
    rest, *headers = rest.split(" ; ")
    target, _, body = rest.partition(" ")
    form: list[tuple[str, str]] | None = None
    if body.startswith("&"):
        form = parse_qsl(body[1:], keep_blank_values=True)
    response = await recorder.http(
        who,
        method,
        target[1:] if target.startswith("^") else prefix + target,
        body or None if form is None else None,
        dict(each.split(": ", 1) for each in headers),
        form=form,
    )
    for each in filter(None, taken.split(" ")):
        name, _, member = each.partition("=")
        recorder.values[name] = _taken(response, member)


def _taken(response: Any, member: str) -> str:
    if member == "etag":
        return str(response.headers.get("etag", ABSENT))
    if member.startswith("/"):
        found = re.search(member[1:], response.content.decode())
        return found[1] if found else ABSENT
    try:
        value: Any = json.loads(response.content)
        for part in member.split("."):
            value = value[int(part) if part.isdigit() else part]
    except (KeyError, IndexError, ValueError, TypeError):
        return ABSENT
    return str(value)
