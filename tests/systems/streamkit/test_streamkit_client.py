"""The Python client, against a service on a socket; quotas and rates, as a client meets them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyhouse.systems.streamkit.client import (
    ChangedError,
    ConfigNotFoundError,
    ExistsError,
    InvalidError,
    Streamkit,
    TooMuchError,
    UnauthorizedError,
)
from keyhouse.systems.streamkit.configs import Create, Delete, Update
from keyhouse.systems.streamkit.schema import Layout, Note, Swap, TextCycler
from tests.support.engine_openers import sqlite
from tests.systems.streamkit.support.service import Service, serving, token


def client(service: Service, customer: str) -> Streamkit:
    return Streamkit(service.url, token=token(customer, service.clock), timeout=60)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("streamkit")
    with serving(sqlite(folder), folder) as served:
        yield served


def test_a_config_from_creation_to_deletion(service: Service) -> None:
    with client(service, "life") as panel:
        made = panel.create(
            Note(id="ideas", title="Stream Ideas", content="", extra={"pinned": True})
        )
        assert made.value.created_at and made.value.extra == {"pinned": True}
        assert panel.get(Note, "ideas") == made
        made.value.content = "1. Play new game"
        changed = panel.replace(made.value, if_match=made.etag)
        with pytest.raises(ChangedError):
            panel.replace(made.value, if_match=made.etag)
        with pytest.raises(ChangedError):
            panel.delete(Note, "ideas", if_match=made.etag)
        assert panel.delete(Note, "ideas", if_match=changed.etag)
        assert not panel.delete(Note, "ideas")


def test_rejections_raise_their_own_classes(service: Service) -> None:
    with client(service, "kinds") as panel:
        with pytest.raises(ConfigNotFoundError) as missing:
            panel.get(Note, "no/such id")
        assert (missing.value.status, missing.value.code) == (
            404,
            "NOT_FOUND",
        ) and missing.value.request_id
        panel.create(Swap(id="a", name="a", source_a="x", source_b="y"))
        with pytest.raises(ExistsError):
            panel.create(Swap(id="a", name="a", source_a="x", source_b="y"))
        with pytest.raises(InvalidError) as refused:
            panel.create(Swap(id="b c", name="a", source_a="x", source_b="y"))
        assert refused.value.fields["field"] == "id" and "field='id'" in str(refused.value)
    with Streamkit(service.url, token="forged") as stranger, pytest.raises(UnauthorizedError):
        stranger.export()


def test_lists_batches_scenes_and_files(service: Service) -> None:
    with client(service, "lists") as panel:
        config: dict[str, Any] = {"name": "a", "textLines": []}
        panel.batch(
            TextCycler, [Create(config={**config, "id": f"c{number}"}) for number in range(25)]
        )
        assert [each.id for each in panel.configs(TextCycler, page=10)] == sorted(
            f"c{number}" for number in range(25)
        )
        service.clock.advance(seconds=1)
        done = panel.batch(
            TextCycler, [Update(id="c1", config={**config, "name": "b"}), Delete(id="c2")]
        )
        assert [each["op"] for each in done] == ["update", "delete"]
        since = panel.get(TextCycler, "c1").value.updated_at
        assert [each.name for each in panel.configs(TextCycler, since=since)] == ["b"]
        assert (
            "c2" not in list(panel.ids(TextCycler, page=7))
            and len(list(panel.ids(TextCycler))) == 24
        )
        named = panel.create(Layout(id="", name="a", scene="s", sources=[{"sourceName": "Camera"}]))
        assert len(named.value.id) == 26
        assert [panel.record_scene("Gaming Scene").count for _ in range(3)] == [1, 2, 3]
        assert [scene.scene_name for scene in panel.top_scenes()] == ["Gaming Scene"]
        assert panel.load(panel.export()) == {
            "success": True,
            "written": 0,
            "unchanged": 26,
            "expired": 0,
        }


def test_a_used_up_quota_is_raised_and_deleting_frees_it(tmp_path: Path) -> None:
    with serving(sqlite(tmp_path), tmp_path, quota_keys=3, quota_bytes=2_000) as service:
        with client(service, "full") as panel:
            for id in ("a", "b"):
                panel.create(Note(id=id, title="", content=""))
            panel.record_scene("Gaming Scene")
            for refused in (
                lambda: panel.create(Note(id="c", title="", content="")),
                lambda: panel.record_scene("Another"),
                lambda: panel.batch(Note, [Create(config={"title": "", "content": ""})]),
            ):
                with pytest.raises(TooMuchError) as full:
                    refused()
                assert (full.value.code, full.value.fields["quota"]) == ("QUOTA_EXCEEDED", "keys")
                assert full.value.retry_after is not None
            assert panel.record_scene("Gaming Scene").count == 2, "what adds nothing is not refused"
            panel.replace(Note(id="a", title="longer", content=""))
            assert panel.delete(Note, "b")
            panel.create(Note(id="c", title="", content=""))
            with pytest.raises(TooMuchError) as large:
                panel.replace(Note(id="c", title="", content="x" * 2_000))
            assert large.value.fields["quota"] == "bytes"
            panel.delete(Note, "a")
            service.clock.advance(seconds=30 * 24 * 3_600)
        with client(service, "full") as panel:  # the scene has expired, and makes room by itself
            for id in ("d", "e"):
                panel.create(Note(id=id, title="", content=""))
            with pytest.raises(TooMuchError):
                panel.create(Note(id="f", title="", content=""))
        with client(service, "another") as other:
            other.create(Note(id="a", title="", content=""))


def test_a_rate_limited_client_gets_the_seconds_to_wait(tmp_path: Path) -> None:
    with (
        serving(sqlite(tmp_path), tmp_path, rate_per_second=1.0, rate_burst=5) as service,
        client(service, "hasty") as panel,
        client(service, "calm") as other,
    ):
        for _ in range(5):
            list(panel.ids(Note))
        with pytest.raises(TooMuchError) as hasty:
            list(panel.ids(Note))
        assert (hasty.value.code, hasty.value.retry_after) == ("RATE_LIMITED", 1.0)
        assert list(other.ids(Note)) == []
        service.clock.advance(seconds=1)
        assert list(panel.ids(Note)) == []
