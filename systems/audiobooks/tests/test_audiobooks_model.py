"""Random sessions of several devices against a model: plays, seconds, place and status are exact,
whatever is lost or repeated, and neither pruning nor merging at any moment changes a figure."""

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from keyhouse.limits import BATCH_ID_KEPT_SECONDS
from keyhouse_audiobooks.files.generated_audio import write_audio
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_listening import Shelf
from systems.audiobooks.tests.test_audiobooks_scan import TAGS, finished
from tests.sizes import size
from tests.support import engine_openers

TOTAL = 300.0


class Heard(NamedTuple):
    """An event as the next one is measured by it."""

    at: int
    moment: float
    speed: float
    is_playing: bool


class Model:
    """Counts as the document says: seconds of the book from forward progress, without seeks, and no
    time twice. It remembers all that has happened, second by second."""

    def __init__(self) -> None:
        self.plays = 0
        self.seconds = 0.0
        self.moment = 0.0
        self.newest: Heard | None = None
        self.late: dict[int, Heard] = {}
        self.starts: list[int] = []
        self.credited: set[int] = set()
        self.ahead = 0.0
        self.is_complete = False

    def event(self, device: int, kind: str, now: int, moment: float, speed: float) -> None:
        if kind == "start":
            self.plays += all(abs(now - each) >= 1_800 for each in self.starts)
            self.starts.append(now)
        heard = Heard(now, moment, speed, kind in ("start", "progress"))
        own, newest = self.late.pop(device, None), self.newest
        if newest is not None and newest.at - now > 5:
            self.late[device] = heard
            self._step(own, heard, kind)
        else:
            if newest is not None and newest.at > now:
                heard = heard._replace(at=newest.at)
            self._step(own or newest, heard, kind, is_current=own is None)
            self.newest = heard
        self.moment, self.is_complete = moment, kind == "complete"

    def _step(
        self, before: Heard | None, after: Heard, kind: str, *, is_current: bool = False
    ) -> None:
        if before is None:
            return
        step, passed = after.moment - before.moment, max(0, after.at - before.at)
        speed = max(before.speed, after.speed)
        time = set(range(before.at, after.at))
        free = len(time - self.credited)
        allowed = free * speed + (5 - self.ahead if free == passed else 0)
        counts = before.is_playing and kind != "start" and 0 < step <= passed * speed + 5
        if counts and allowed > 0:
            listened = min(step, allowed)
            self.seconds += listened
            self.credited |= time
            self.ahead = max(0.0, self.ahead + listened - free * speed)
        elif is_current:
            self.ahead = max(0.0, self.ahead - passed)

    @property
    def status(self) -> str:
        if self.is_complete or self.moment >= 0.95 * TOTAL:
            return "finished"
        return "in_progress" if self.moment > 0 else "unstarted"


class Device:
    """A player of the listener, with its own API key. It knows the state that it last saw."""

    def __init__(self, shelf: Shelf, number: int) -> None:
        key = shelf.phone.post("/auth/api-keys", json={"name": f"device {number}"}).json()["data"]
        self.client = shelf.service.client(key["key"])
        self.revision = 0
        self.sent: list[tuple[int, dict[str, Any]]] = []
        self.is_offline = False
        self.waiting: list[tuple[int, float, dict[str, Any]]] = []


class Sessions:
    """Random sessions of several devices: seeks, speeds, pauses, lost and repeated requests, times
    without a network, and conflicts between devices; events are pruned and files merged in
    between."""

    def __init__(self, shelf: Shelf, seed: int) -> None:
        self.shelf = shelf
        self.chance = random.Random(seed)
        self.model = Model()
        self.devices = [Device(shelf, number) for number in range(3)]
        self.now, self.moment = 0, 0.0
        self.ids = list(shelf.ids)
        self.seconds = 100.0  # of each file that the devices know

    def step(self, number: int) -> None:
        chance = self.chance
        device = chance.choice(self.devices)
        passed = chance.choice([1, 5, 10, 30, 2_000, 40_000])
        speed = chance.choice([0.5, 1.0, 1.5, 3.0])
        kind = chance.choice(["start", "progress", "progress", "progress", "pause", "complete"])
        self.shelf.service.clock.advance(seconds=passed)
        self.now += passed
        self.moment = min(299.0, self.moment + chance.choice([0.5, 1]) * passed * speed)
        if chance.random() < 0.3:
            self.moment = float(chance.randrange(0, 299))  # a seek
        if chance.random() < 0.1:
            return  # the request was lost on its way
        body = {
            "segment_id": self.ids[int(self.moment // self.seconds)],
            "position_seconds": self.moment % self.seconds,
            "event_type": kind,
            "play_speed": speed,
            "idempotency_key": f"k{number}",
        }
        device.waiting.append((self.now, self.moment, body))
        if chance.random() < 0.15:
            device.is_offline = not device.is_offline
        if device.is_offline:
            return
        self.send_waiting(device)
        kept = [each for at, each in device.sent[-2:] if self.now - at < BATCH_ID_KEPT_SECONDS]
        if kept and chance.random() < 0.3:
            # a reply was lost: this, or an earlier request comes again
            reply = device.client.post(f"{self.shelf.path}/position", json=chance.choice(kept))
            assert reply.status_code == 200, reply.text

    def send_waiting(self, device: Device) -> None:
        """Send what the device has queued, in order, each with its age."""
        for then, moment, body in device.waiting:
            self.send(
                device, body if then == self.now else {**body, "seconds_ago": self.now - then}
            )
            number, kind = self.devices.index(device), body["event_type"]
            self.model.event(number, kind, then, moment, body["play_speed"])
        device.waiting.clear()

    def send(self, device: Device, body: dict[str, Any]) -> None:
        """Save a position; after a conflict, resume from the newer place, as its listener chose."""
        path, given = f"{self.shelf.path}/position", dict(body)
        if self.chance.random() < 0.5:
            given["based_on"] = device.revision
        reply = device.client.post(path, json=given)
        if reply.status_code == 409:
            newer = reply.json()["data"]
            assert newer["revision"] > device.revision
            given = {**body, "based_on": newer["revision"]}
            reply = device.client.post(path, json=given)
        assert reply.status_code == 200, reply.text
        device.revision = reply.json()["data"]["revision"]
        device.sent.append((self.now, given))

    def check(self) -> None:
        shelf, model = self.shelf, self.model
        device = self.devices[0].client
        expected = {"plays": model.plays, "listen_seconds": int(model.seconds)}
        for path in ("me", f"books/{shelf.book['id']}", f"works/{shelf.book['work_id']}"):
            found = device.get(f"/stats/{path}").json()["data"]
            assert {name: found[name] for name in expected} == expected, path
        state = device.get(f"{shelf.path}/state").json()["data"]
        if state["last_segment_id"] is None:
            return
        listed = device.get(f"{shelf.path}/segments", params={"inactive": True}).json()["data"]
        starts = {each["id"]: each["offset_start"] for each in listed["items"]}
        place = starts[state["last_segment_id"]] + state["position_seconds"]
        assert place == pytest.approx(model.moment)
        assert state["status"] == model.status


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
@pytest.mark.parametrize("seed", range(size(1, 2, 50)))
@pytest.mark.soak
def test_random_sessions_of_three_devices_are_counted_exactly(
    tmp_path: Path, engine: str, seed: int
) -> None:
    root = tmp_path / "books"
    root.mkdir()
    opener = engine_openers.ALL[engine](tmp_path)
    kept: dict[str, Any] = {"keep_days": 1, "keep_events": 0}
    with (
        LibraryService(opener, tmp_path / "data", roots=[root], **kept) as service,
        service.admin() as first,
    ):
        sessions = Sessions(Shelf(service, first), seed)
        key = first.post("/auth/api-keys", json={"name": "k"}).json()["data"]["key"]
        admin = service.client(key)
        pruned = 0

        def prune() -> int:
            ended = finished(admin, admin.post("/operations/prune"))
            lines = admin.get(f"/operations/{ended['id']}/logs").json()["data"]["items"]
            return int(lines[-1]["message"].split()[1])

        for number in range(90):
            sessions.step(number)
            if sessions.chance.random() < 0.08:
                pruned += prune()
                sessions.check()
            if number == 60:
                whole = write_audio(root / "merged" / "whole.wav", 300, tags=TAGS)
                reply = admin.post(f"{sessions.shelf.path}/merge", json={"file_path": str(whole)})
                assert finished(admin, reply)["status"] == "completed"
                sessions.check()
        for device in sessions.devices:
            sessions.send_waiting(device)
        sessions.check()
        service.clock.advance(seconds=2 * 24 * 3_600)
        assert pruned + prune() > 0
        sessions.check()
        service.check()
        for client in (admin, sessions.shelf.phone, sessions.shelf.desk):
            client.close()
        for device in sessions.devices:
            device.client.close()
