"""The typed client, and the commands that talk to a service: data commands, refresh, admins."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from keyhouse.errors import AccessError, CallerError, ConflictError, KeyhouseError, NotFoundError
from keyhouse.nats.embedded_users import BUCKETS_USER, with_embedded_user
from keyhouse_playlist.client import CodeRejectedError, PlaylistClient
from systems.playlist.tests.support.processes import demonstration, printed_code
from systems.playlist.tests.support.service import fill, item
from tests.serve.support.serve_process import Serving, environment, serving
from tests.support.polling import until, wait_until
from tests.support.program import run

ITEMS = [item(f"v{number}", f"Title {number}", "Horror", seconds=100) for number in range(5)]
SETTINGS = {
    "KEYHOUSE_PLAYLIST_DELIVERY": "console",
    "KEYHOUSE_PLAYLIST_ADMINS": "Ada",
    "KEYHOUSE_PLAYLIST_QUEUE_INTERVAL_SECONDS": "0.2",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("playlist")
    (folder / "data").mkdir()
    fill(folder / "data", ITEMS)
    with serving(folder, "playlist", **SETTINGS) as found:
        yield found


@pytest.fixture(scope="module")
def data(served: Serving) -> Path:
    return served.log_path.parent / "data"


@pytest.fixture(scope="module")
def robot(served: Serving, data: Path) -> Iterator[None]:
    with demonstration(data):
        yield


def signed_in(served: Serving, name: str) -> PlaylistClient:
    url = f"{served.http}/playlist"
    request = PlaylistClient.request_code(url, name)
    return PlaylistClient.sign_in(url, name, printed_code(served, name), request=request)


@pytest.fixture(scope="module")
def ada(served: Serving) -> Iterator[PlaylistClient]:
    with signed_in(served, "Ada") as client:
        yield client


def keyhouse(*arguments: str, status: int = 0, given: str | None = None, **more: str) -> str:
    ran = run(*arguments, code=status, given=given, only=environment(**more))
    return ran.stdout if status == 0 else ran.stderr


def test_the_client_signs_in_and_out(served: Serving) -> None:
    with signed_in(served, "Zed") as zed:
        assert (zed.session().username, zed.session().role) == ("Zed", "viewer")
        with pytest.raises(AccessError) as refused:
            zed.create("Mine")
        assert (refused.value.status, refused.value.code) == (403, "forbidden")
        zed.sign_out()
        with pytest.raises(AccessError):
            zed.session()


def test_a_rejected_code_is_a_keyhouse_error_as_a_rejected_request_is(served: Serving) -> None:
    with pytest.raises(KeyhouseError) as rejected:
        PlaylistClient.sign_in(f"{served.http}/playlist", "Zed", "AAAAAAAA")
    assert isinstance(rejected.value, CodeRejectedError)
    assert rejected.value.code == "unauthorized"
    assert rejected.value.fields["status"] == "unrequested"


def test_the_client_searches_saves_and_mixes(ada: PlaylistClient) -> None:
    found = ada.search("title", categories=["Horror"], limit=2, facets=True)
    assert (found.total, len(found.items)) == (5, 2)
    assert {each.video_id for each in ada.items("title")} == {f"v{n}" for n in range(5)}
    assert ada.categories() == ["Horror"] and ada.item("v1").title == "Title 1"
    with pytest.raises(NotFoundError) as absent:
        ada.item("none")
    assert absent.value.code == "not_found" and absent.value.fields == {"video_id": "none"}
    first, second = ada.create("First", ["v0", "v1"]), ada.create("Second", ["v2"])
    with pytest.raises(ConflictError) as taken:
        ada.create(" first ")
    assert taken.value.code == "name_taken"
    with pytest.raises(CallerError):
        ada.create("x" * 500)
    assert [each.name for each in ada.playlists(mine=True, search="fir")] == ["First"]
    assert ada.change(first.playlist_id, video_ids=["v1", "v0"])["items"][0]["video_id"] == "v1"
    assert ada.change(first.playlist_id, name="Firsts")["name"] == "Firsts"
    fork = ada.fork(first.playlist_id)
    assert ada.playlist(fork.playlist_id)["forked_from"] == first.playlist_id
    both = [first.playlist_id, second.playlist_id]
    mixed = ada.preview(both, "interleave", interleave_pattern="BA")
    assert [each.video_id for each in mixed.items] == ["v2", "v1", "v0"]
    assert ada.save_marathon("Both", both, "shuffle", shuffle_seed=7).name == "Both"
    ada.delete(fork.playlist_id)
    with pytest.raises(NotFoundError):
        ada.playlist(fork.playlist_id)


def test_data_commands_show_rows_through_the_service(served: Serving, ada: PlaylistClient) -> None:
    made = ada.create("Shown by the command").playlist_id
    where = ["--store", served.http, "--token", ada.token]
    space = ["--space", "kryten_playlist_playlists"]
    listed = keyhouse("list", "playlist", "ns/default/playlists/", *space, *where).split()
    assert f"ns/default/playlists/{made}" in listed
    count = keyhouse("count", "playlist", "ns/default/playlists/", *space, *where)
    assert str(len(listed)) in count
    row = keyhouse("get", "playlist", f"ns/default/playlists/{made}", *space, *where)
    assert json.loads(row)["name"] == "Shown by the command"
    codes = keyhouse("list", "playlist", "--space", "kryten_playlist_auth", "--json", *where)
    assert "otp_hash" not in codes
    refused = keyhouse(
        "delete", "playlist", f"ns/default/playlists/{made}", "--yes", *space, *where, status=1
    )
    assert "read only" in refused
    with signed_in(served, "Yan") as viewer:
        arguments = ["list", "playlist", *space, "--store", served.http]
        assert "admins" in keyhouse(*arguments, "--token", viewer.token, status=1)
    assert "sign-in" in keyhouse(*arguments, status=1)


def test_the_sign_in_command_prints_a_token(served: Serving) -> None:
    command = ["-m", "keyhouse.cli", "playlist", "sign-in", "Xia", "--store", served.http]
    process = subprocess.Popen(
        [sys.executable, *command],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    printed, errors = process.communicate(printed_code(served, "Xia") + "\n", timeout=30)
    assert process.returncode == 0, errors
    assert printed == f"{printed.strip()}\n", "nothing else, for TOKEN=$(…)"
    with PlaylistClient(f"{served.http}/playlist", token=printed.strip()) as xia:
        assert xia.session().username == "Xia"


def test_admins_and_refreshes_find_the_service(
    served: Serving, data: Path, ada: PlaylistClient, tmp_path: Path
) -> None:
    assert "Wes" in keyhouse("playlist", "admin", "add", "Wes", "--store", str(data))
    with signed_in(served, "wes") as wes:
        assert wes.session().role == "admin"
    source = tmp_path / "catalog.json"
    rows = [{"video_id": "n", "title": "New", "manifest_url": "https://m/n"}]
    source.write_text(json.dumps(rows))
    printed = keyhouse("playlist", "refresh", "--file", str(source), KEYHOUSE_DATA=str(data))
    assert printed.startswith("1 item published as ")
    assert ada.search().snapshot_id == printed.split()[-1].rstrip(".")
    source.write_text("[{}]")
    failed = keyhouse("playlist", "refresh", "--file", str(source), "--store", str(data), status=1)
    assert "line" in failed and [each.video_id for each in ada.items()] == ["n"]


def test_the_buckets_are_on_the_embedded_nats_server_which_syncs_every_write(
    served: Serving, data: Path
) -> None:
    configuration = json.loads(next(data.rglob("nats-server.json")).read_text())
    assert configuration["jetstream"]["sync_interval"] == "always"

    expected = {
        f"KV_kryten_playlist_{name}"
        for name in ("acl", "analytics", "auth", "likes", "playlists", "snapshot")
    }

    async def wait_for_buckets() -> None:
        client = await nats.connect(with_embedded_user(served.nats, data, BUCKETS_USER))

        async def are_created() -> bool:
            streams = await client.jetstream().streams_info()
            return expected <= {each.config.name or "" for each in streams}

        await until(are_created)
        await client.close()

    asyncio.run(wait_for_buckets())
    assert not list(data.glob("playlist*.db"))


def test_an_admin_is_added_over_nats(served: Serving, data: Path) -> None:
    url = with_embedded_user(served.nats, data, BUCKETS_USER)
    assert "Val" in keyhouse("playlist", "admin", "add", "Val", "--store", url)
    assert "Val" in keyhouse("playlist", "admin", "add", "VAL", KEYHOUSE_NATS=url)
    add = ["playlist", "admin", "add", "Val"]
    assert "Val" in keyhouse(*add, KEYHOUSE_NATS="embedded", KEYHOUSE_DATA=str(data))


def test_an_admin_without_a_name_is_rejected(served: Serving, data: Path) -> None:
    for name in ("", " ", "x" * 65, "a\nb"):
        failed = keyhouse("playlist", "admin", "add", name, "--store", str(data), status=1)
        assert "name of a user" in failed


def test_admins_are_added_in_the_namespace_of_the_settings(served: Serving, data: Path) -> None:
    where = ["playlist", "admin", "add", "Uma", "--store", str(data)]
    assert keyhouse(*where, KEYHOUSE_PLAYLIST_NAMESPACE="tv") == "Admins: Uma.\n"
    assert keyhouse(*where, "--namespace", "radio") == "Admins: Uma.\n"
    with signed_in(served, "Uma") as uma:
        assert uma.session().role == "viewer"


def test_an_unknown_space_is_answered_with_the_names_of_all(
    served: Serving, ada: PlaylistClient
) -> None:
    where = ["--space", "acl", "--store", served.http, "--token", ada.token]
    failed = keyhouse("list", "playlist", *where, status=1)
    assert "no such space" in failed and "kryten_playlist_acl" in failed


@pytest.mark.usefixtures("robot")
def test_the_client_pushes_cancels_likes_and_hears_events(
    served: Serving, ada: PlaylistClient
) -> None:
    ids = [each.video_id for each in ada.items()][:6] * 20  # 24 seconds: time to cancel the push
    made = ada.create("Demonstration", ids)
    heard: list[tuple[str, Any]] = []
    with PlaylistClient(f"{served.http}/playlist", token=ada.token) as other:

        def cancel_the_push() -> None:
            is_cancelled = False
            for name, event in other.events():
                heard.append((name, event))
                if name == "apply" and event["status"] != "running":
                    return
                if name == "apply" and event["done"] >= 2 and not is_cancelled:
                    other.cancel(event["apply_id"])
                    is_cancelled = True

        thread = threading.Thread(target=cancel_the_push, daemon=True)
        thread.start()
        wait_until(lambda: heard)
        pushed = ada.push(made.playlist_id)
        thread.join(60)
    assert pushed.status == "cancelled" and 2 <= pushed.enqueued_count < len(ids)
    wait_until(ada.now_playing)
    assert len(ada.queue().items) >= 1
    assert ada.like().status == "ok" and ada.like().status == "duplicate"
    assert ada.top_liked(window_days=1)[0].count == 1
    assert all(each.count >= 1 for each in ada.top_played())
    with pytest.raises(NotFoundError):
        ada.cancel(pushed.apply_id)
