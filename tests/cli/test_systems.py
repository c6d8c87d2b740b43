"""Each system is described completely, and every key of its document is explained."""

import pytest

from keyhouse.keys import proof
from keyhouse.schema.description import describe
from keyhouse.schema.explanation import explain
from keyhouse.schema.keyspace_document import document
from keyhouse.service.registry import load_system, system_names
from tests.support.program import run

ULID = "01HQ3K5V7X9ZB2D4F6G8J0K2M4"

PRINTED = {
    "rosey": ["theme", "message_count", "game_42", "any text: 100% / *"],
    "streamkit": [
        "cust_12345_streamkit_text-cyclers_config1",
        "cust_12345_streamkit_swaps_camera-gameplay-swap",
        "cust_12345_streamkit_layouts_gaming-4cam",
        "cust_12345_streamkit_notes_stream-ideas",
        "cust_12345_streamkit_scene_activity_Gaming Scene",
        "cust_12345_streamkit_scene_activity_Just Chatting",
    ],
    "audiobooks": [
        "meta:version",
        "mig:000001",
        f"u:{ULID}",
        f"idx:user:username:{'ada'}",
        f"sess:{ULID}",
        f"idx:sess:user:{ULID}:{ULID}",
        f"pref:{ULID}:theme",
        f"a:{ULID}",
        f"idx:series:author:{ULID}:{ULID}",
        f"idx:work:title:dune:author:{ULID}",
        "idx:work:title:dune:author:null",
        f"b:{ULID}",
        f"b:duration_map:{ULID}",
        f"idx:book:series:{ULID}:0000001500:{ULID}",
        f"idx:book:tag:science fiction:{ULID}",
        f"bfi:{ULID}:0000000001",
        f"playe:{ULID}:{ULID}:{ULID}",
        f"playp:{ULID}:{ULID}",
        f"stats:book:plays:{ULID}",
        f"op:{ULID}",
        f"op:{ULID}:next_seq",
        f"opl:{ULID}:0000000001",
    ],
    "playlist": [
        "ns/default/current",
        "ns/default/snapshots/2025-12-18T12=3A34=3A56Z-abc",
        "ns/default/admins",
        "ns/default/roles/TacoBelmont",
        "ns/default/playlists/index",
        "ns/default/playlists/3f2a",
        "ns/default/otp/request/tacobelmont",
        "ns/default/session/abc",
        "ns/default/ipblock/2001=3Adb8=3A=3A1",
        "ns/default/counters/global",
        "ns/default/items/8FnmbsrWl",
        "ns/default/items/8FnmbsrWl/likes",
        "ns/default/dedupe/8FnmbsrWl/tacobelmont",
    ],
    "history": ["IN_PROGRESS|1981", "COMPLETED", "/cricket/4/60091", "/1446/1450"],
}


@pytest.mark.parametrize("name", system_names())
def test_the_document_of_a_system_has_every_template(name: str) -> None:
    shown = run("describe", name).stdout
    for schema in load_system(name).schemas:
        for record, declared in schema.declared():
            assert f"`{declared.template.text}`" in shown
            assert record.name in shown


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name in system_names() for key in PRINTED[name]]
)
def test_every_key_of_the_document_is_explained(name: str, key: str) -> None:
    found = [
        explained
        for schema in load_system(name).schemas
        if (explained := explain(schema, key)) is not None
    ]
    assert found, f"no template of {name} builds {key}"
    assert all(explained.key == key for explained in found)


@pytest.mark.parametrize("name", system_names())
def test_the_program_explains_the_first_key(name: str) -> None:
    assert PRINTED[name][0] in run("explain", name, PRINTED[name][0]).stdout


@pytest.mark.parametrize("name", system_names())
def test_every_template_matches_a_key_of_the_document(name: str) -> None:
    for schema in load_system(name).schemas:
        for record, declared in schema.declared():
            key = proof.example(declared.template)
            if declared.template.split(key) is None:
                continue  # matches the pattern, but is not a valid key: a month 00, a cut escape
            explained = explain(schema, key)
            assert explained is not None
            assert (explained.template, explained.record) == (declared.template.text, record.name)


@pytest.mark.parametrize("name", system_names())
def test_the_document_of_a_system_is_valid_markdown(name: str) -> None:
    system = load_system(name)
    page = document(system.title, "", [describe(schema) for schema in system.schemas])
    assert page.startswith(f"# {system.title}\n")
    assert page.count("```") % 2 == 0
    assert all(line.count("`") % 2 == 0 for line in page.splitlines() if "```" not in line)
