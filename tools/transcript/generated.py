"""Requests that follow from an OpenAPI document: invalid ones of each route, of each caller."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.transcript.client import Recorder

__all__ = ["route_requests"]

BODIES: Final = ("", "{", "[]", '{"zz": 1}', '"x"', "null", "{}", '{"a":1,"a":2}', "\ufeff{}")
VALUES: Final = ("x", "", "-1", "0", "1000000", "1&{name}=2")
CONDITIONS: Final = ('"1"', "*", "x", 'W/"1"', '"1", "2"')
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
BODILESS: Final = re.compile("/(scan|organize|prune|reindex|like|current)$")
ENDING: Final = re.compile("/logout$")


async def route_requests(
    recorder: Recorder, system: str, strong: str, others: Sequence[str], fields: Mapping[str, str]
) -> None:
    reply = await recorder.client("-").get(f"/{system}/openapi.json")
    document = reply.json()
    for path, operations in document["paths"].items():
        at = f"/{system}" + re.sub(
            r"\{(\w+)\}", lambda match: fields.get(match[1], "nothing"), path
        )
        recorder.section = f"{system} routes: {path}"
        for method, operation in operations.items():
            await _operation(recorder, method.upper(), at, operation, strong, others)
        for method in METHODS:
            if method.lower() not in operations and not (method == "HEAD" and "get" in operations):
                await recorder.http("-", method, at)
                await recorder.http(strong, method, at)
        for bad in (
            f"{at}/",
            f"{at}/zz/zz",
            at.replace("nothing", "%2F"),
            at.replace("nothing", "a%00b"),
            at.replace("nothing", "x" * 2000),
        ):
            if bad != at:
                await recorder.http(strong, next(iter(operations)).upper(), bad)


async def _operation(
    recorder: Recorder, method: str, at: str, operation: Any, strong: str, others: Sequence[str]
) -> None:
    required = "&".join(
        f"{each['name']}=nothing"
        for each in operation.get("parameters", [])
        if each["in"] == "query" and each.get("required")
    )
    target = f"{at}?{required}" if required else at
    join = "&" if required else "?"
    for who in ("-", "bad") if ENDING.search(at) else others:
        await recorder.http(who, method, target)
        if "requestBody" in operation:
            await recorder.http(who, method, target, "{}")
    if ENDING.search(at):
        return
    runs = bool(BODILESS.search(at)) and method == "POST"
    if "requestBody" in operation:
        for body in BODIES:
            if not runs or body in ("{", "[]", '"x"'):
                await recorder.http(strong, method, target, body)
        for media in ("text/plain", "application/json; charset=latin-1", "application/xml"):
            await recorder.http(strong, method, target, "{", {"content-type": media})
        await recorder.http(strong, method, target, "{", {"content-encoding": "gzip"})
    elif not runs:
        await recorder.http(strong, method, target)
        await recorder.http(strong, method, target, '{"zz": 1}')
    if runs:
        return
    content = "{" if "requestBody" in operation else None
    await recorder.http(strong, method, f"{target}{join}zz=1", content)
    for each in operation.get("parameters", []):
        name = each["name"]
        if each["in"] == "query":
            for value in VALUES:
                await recorder.http(
                    strong, method, f"{at}?{name}={value.format(name=name)}", content
                )
        elif name in ("If-Match", "If-None-Match"):
            for value in CONDITIONS:
                valid = None if content is None else "{}"
                await recorder.http(strong, method, target, valid, {name.lower(): value})
    for accept in ("image/png", "text/html", "application/json;q=0", "*/*;q=0.1"):
        await recorder.http(strong, method, target, content, {"accept": accept})
    if method == "GET":
        await recorder.http(strong, "HEAD", target)
        await recorder.http(
            strong, method, target, None, {"range": "bytes=0-1", "if-none-match": "*"}
        )
