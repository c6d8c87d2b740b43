"""Random sessions of two devices against a model: plays, seconds, place and status are exact,
whatever is repeated, and pruning at any moment changes no figure."""

import random
from typing import Any

import httpx
import pytest

from tests.systems.audiobooks.support.service import LibraryService
from tests.systems.audiobooks.test_audiobooks_listening import Shelf
from tests.systems.audiobooks.test_audiobooks_scan import finished

TOTAL = 300.0


class Model:
    """Counts as the document says: seconds of the book from forward progress, without seeks."""

    def __init__(self) -> None:
        self.plays = 0
        self.seconds = 0.0
        self.at = 0
        self.moment = 0.0
        self.speed = 1.0
        self.is_playing = False
        self.started: int | None = None
        self.is_complete = False

    def event(self, kind: str, now: int, moment: float, speed: float) -> None:
        step = moment - self.moment
        allowed = (now - self.at) * max(speed, self.speed) + 5
        if kind == "start":
            if self.started is None or now - self.started >= 1_800:
                self.plays += 1
            self.started = now
        elif self.is_playing and 0 < step <= allowed:
            self.seconds += step
        self.at, self.moment, self.speed = now, moment, speed
        self.is_playing = kind in ("start", "progress")
        self.is_complete = kind == "complete"

    @property
    def status(self) -> str:
        if self.is_complete or self.moment >= 0.95 * TOTAL:
            return "finished"
        return "in_progress" if self.moment > 0 else "unstarted"


@pytest.mark.parametrize("service", ["sqlite", "rocksdb"], indirect=True)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_sessions_of_two_devices_are_counted_exactly(
    service: LibraryService, admin: httpx.Client, seed: int
) -> None:
    shelf, model, chance = Shelf(service, admin), Model(), random.Random(seed)
    now, moment = 0, 0.0
    for number in range(80):
        seconds = chance.choice([1, 5, 10, 30, 2_000])
        speed = chance.choice([1.0, 1.5, 3.0])
        kind = chance.choice(["start", "progress", "progress", "progress", "pause", "complete"])
        service.clock.advance(seconds=seconds)
        now += seconds
        moment = min(299.0, moment + seconds * speed)
        if chance.random() < 0.3:
            moment = float(chance.randrange(0, 299))  # a seek
        body: dict[str, Any] = {"event_type": kind, "play_speed": speed}
        device = chance.choice([shelf.phone, shelf.desk])
        for _ in range(chance.choice([1, 1, 2])):  # a reply was lost
            reply = shelf.save(
                device, int(moment // 100), moment % 100, idempotency_key=f"k{number}", **body
            )
            assert reply.status_code == 200, reply.text
        model.event(kind, now, moment, speed)
        if number % 20 == 0:
            assert finished(admin, admin.post("/operations/prune"))["status"] == "completed"
    assert shelf.statistics("/stats/me") == (model.plays, int(model.seconds))
    assert shelf.statistics(f"/stats/books/{shelf.book['id']}") == (
        model.plays,
        int(model.seconds),
    )
    state = shelf.phone.get(f"{shelf.path}/state").json()["data"]
    place = shelf.ids.index(state["last_segment_id"]) * 100 + state["position_seconds"]
    assert (place, state["status"]) == (model.moment, model.status)
    shelf.phone.close()
    shelf.desk.close()
