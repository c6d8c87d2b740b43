"""Sends requests, over HTTP and NATS, and keeps their replies."""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import nats

from tools.transcript.normal import Names
from tools.transcript.server import Server

__all__ = ["Recorder"]

STREAM_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 0.4
WAIT_SECONDS: Final = 60
_FIGURES: Final = re.compile(r"/studio/slow|/metrics")

CATALOGS: Final = {
    "catalog": json.dumps(
        [
            {
                "video_id": id,
                "title": title,
                "categories": ["Horror", "Space"] if "Alien" in title else ["Shows"],
                "manifest_url": f"https://media.example/{id}.json",
                "duration_seconds": 60,
                "thumbnail_url": None,
            }
            for id, title in (
                ("v1", "Alien"),
                ("v2", "Aliens & <co>"),
                ("e1", "Show S01E01"),
                ("e2", "Show S01E02"),
                ("e3", "Show S01E03"),
            )
        ]
    ),
    "broken": '[{"video_id": "v1"}]',
}


class Recorder:
    """`values`: what earlier replies gave, for `$name` in requests; `lines`: the transcript."""

    def __init__(self, server: Server, bus: Any, robot: Any) -> None:
        self.server = server
        self.values: dict[str, str] = {"books": str(server.books)}
        for name, text in CATALOGS.items():
            (server.folder / f"{name}.json").write_text(text)
            self.values[name] = str(server.folder / f"{name}.json")
        self.lines: list[dict[str, Any]] = []
        self.section = ""
        self._names = Names(
            {
                str(server.folder): "FOLDER",
                server.http: "http://SERVER",
                server.http.removeprefix("http://"): "SERVER",
                server.nats: "nats://SERVER",
            }
        )
        self._buses = {"db": bus, "keyhouse": bus, "kryten": robot}
        self._read = 0
        self._clients: dict[str, httpx.AsyncClient] = {}

    def fill(self, text: str) -> str:
        return re.sub(r"\$(\w+)", lambda match: self.values.get(match[1], match[0]), text)

    def client(self, who: str) -> httpx.AsyncClient:
        """Return the client of somebody: `ann@` has cookies, as browser; others have tokens."""
        if who not in self._clients:
            client = httpx.AsyncClient(base_url=self.server.http, timeout=60, trust_env=False)
            del client.headers["user-agent"]
            client.headers["accept-encoding"] = "identity"
            client.headers["x-request-id"] = "r"
            if who.endswith("@"):
                client.headers["accept"] = "text/html,application/xhtml+xml,*/*;q=0.8"
                client.headers["sec-fetch-site"] = "same-origin"
            self._clients[who] = client
        client = self._clients[who]
        if who in self.values:
            client.headers["authorization"] = f"Bearer {self.values[who]}"
        return client

    async def http(
        self,
        who: str,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        form: list[tuple[str, str]] | None = None,
        name: str = "",
    ) -> httpx.Response:
        filled = self.fill(path)
        headers = {key: self.fill(value) for key, value in (headers or {}).items()}
        content = None
        if form is not None:
            content = urlencode([(key, self.fill(value)) for key, value in form]).encode()
            headers.setdefault("content-type", "application/x-www-form-urlencoded")
        elif body is not None:
            text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
            content = self.fill(text).encode()
            headers.setdefault("content-type", "application/json")
        self._names.sent(f"{method} {path}", f"{filled} {headers} {(content or b'').decode()}")
        client = self.client(who)
        request = client.build_request(method, filled, headers=headers, content=content)
        response = await client.send(request, stream=True)
        data = b""
        try:
            if "event-stream" in response.headers.get("content-type", ""):
                data = await _stream(response)
            else:
                data = await response.aread()
        finally:
            await response.aclose()
        shown_data = b"" if _FIGURES.search(path) and response.status_code == 200 else data
        reply = self._names.reply(response.status_code, response.headers.multi_items(), shown_data)
        shown = {"who": who, "request": f"{method} {path}"}
        sent = {
            "headers": {key: self._names.text(value) for key, value in headers.items()},
            "body": form or body,
        }
        self.line(shown | {key: value for key, value in sent.items() if value}, reply, name)
        response._content = data
        return response

    def line(self, request: dict[str, Any], reply: Any, name: str = "") -> None:
        shown = {
            key: self._names.text(value) if isinstance(value, str) else value
            for key, value in request.items()
        }
        self.lines.append(
            {"section": self.section, **shown, "reply": reply, **({"name": name} if name else {})}
        )

    async def nats(self, subject: str, body: Any = "", reply_to: str = "") -> None:
        subject = self.fill(subject)
        data = (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode()
        self._names.sent(subject, f"{subject} {data.decode()}")
        bus = self._buses.get(subject.split(".")[0], self._buses["db"])
        inbox = reply_to or bus.new_inbox()
        reply: Any = None
        try:
            subscription = await bus.subscribe(inbox)
            await bus.publish(subject, data, reply=inbox)
            message = await subscription.next_msg(timeout=SILENCE_SECONDS if reply_to else 3)
            await subscription.unsubscribe()
            reply = [dict(message.headers or {}), self._names.body(message.data)]
            reply[0] = {key: self._names.body(value.encode()) for key, value in reply[0].items()}
        except (nats.errors.Error, TimeoutError) as error:
            reply = type(error).__name__
        shown = {"request": f"NATS {subject}", "body": body} | (
            {"reply_to": reply_to} if reply_to else {}
        )
        self.line(shown, reply)

    async def until(self, who: str, path: str, text: str) -> None:
        """Wait until a response has a text, without recording it."""
        for _ in range(WAIT_SECONDS * 5):
            response = await self.client(who).get(self.fill(path))
            if re.search(text, response.text):
                return
            await asyncio.sleep(0.2)
        self.line({"who": who, "request": f"UNTIL {path}"}, f"never: {text}")

    async def until_logged(self, pattern: str) -> str:
        for _ in range(25):
            if found := re.compile(pattern).search(self.server.log(), self._read):
                self._read = found.end()
                return found[1]
            await asyncio.sleep(0.2)
        self.line({"request": f"LOG {pattern}"}, "never")
        return "absent"

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()


async def _stream(response: httpx.Response) -> bytes:
    data = b""
    chunks = response.aiter_raw()
    with suppress(TimeoutError, StopAsyncIteration):
        while b": caught-up" not in data:
            data += await asyncio.wait_for(anext(chunks), STREAM_SECONDS)
    return data
