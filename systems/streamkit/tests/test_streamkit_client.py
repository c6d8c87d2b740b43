"""The Python client, against a service on a socket; quotas and rates, as a client meets them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyhouse.errors import (
    CallerError,
    ConflictError,
    NotFoundError,
    QuotaError,
    RateError,
    RevisionError,
    TokenError,
)
from keyhouse_streamkit.client import Streamkit
from keyhouse_streamkit.configs import Create, Delete, Update
from keyhouse_streamkit.schema import Layout, Note, Swap, TextCycler
from systems.streamkit.tests.support.service import Service, serving, token
from tests.support.engine_openers import sqlite


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
        with pytest.raises(RevisionError):
            panel.replace(made.value, if_match=made.etag)
        with pytest.raises(RevisionError):
            panel.delete(Note, "ideas", if_match=made.etag)
        assert panel.delete(Note, "ideas", if_match=changed.etag)
        assert not panel.delete(Note, "ideas")


def test_rejections_raise_their_own_classes(service: Service) -> None:
    with client(service, "kinds") as panel:
        with pytest.raises(NotFoundError) as missing:
            panel.get(Note, "no/such id")
        assert (missing.value.status, missing.value.code) == (404, "NOT_FOUND")
        panel.create(Swap(id="a", name="a", source_a="x", source_b="y"))
        with pytest.raises(ConflictError):
            panel.create(Swap(id="a", name="a", source_a="x", source_b="y"))
        with pytest.raises(CallerError) as refused:
            panel.create(Swap(id="b c", name="a", source_a="x", source_b="y"))
        assert refused.value.fields["field"] == "id" and "field='id'" in str(refused.value)
    with Streamkit(service.url, token="forged") as stranger, pytest.raises(TokenError):
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
                with pytest.raises(QuotaError) as full:
                    refused()
                assert full.value.fields["quota"] == "keys" and "retry_after" in full.value.fields
            assert panel.record_scene("Gaming Scene").count == 2, "what adds nothing is not refused"
            panel.replace(Note(id="a", title="longer", content=""))
            assert panel.delete(Note, "b")
            panel.create(Note(id="c", title="", content=""))
            with pytest.raises(QuotaError) as large:
                panel.replace(Note(id="c", title="", content="x" * 2_000))
            assert large.value.fields["quota"] == "bytes"
            panel.delete(Note, "a")
            service.clock.advance(seconds=30 * 24 * 3_600)
        with client(service, "full") as panel:  # the scene has expired, and makes room by itself
            for id in ("d", "e"):
                panel.create(Note(id=id, title="", content=""))
            with pytest.raises(QuotaError):
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
        with pytest.raises(RateError) as hasty:
            list(panel.ids(Note))
        assert hasty.value.fields["retry_after"] == 1
        assert list(other.ids(Note)) == []
        service.clock.advance(seconds=1)
        assert list(panel.ids(Note)) == []
