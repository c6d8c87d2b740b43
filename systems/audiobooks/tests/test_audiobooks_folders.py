"""Books by the names of their folders and files: discs, untagged files, and files that move from
one book to another."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse_audiobooks.files.folder_names import (
    PathNames,
    book_folder,
    is_book_folder,
    names_of,
    tagged_disc_folder,
)
from keyhouse_audiobooks.files.generated_audio import png, write_audio
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_scan import TAGS, books, scan, segments


@pytest.mark.parametrize(
    ("folder", "book", "disc"),
    [
        ("/r/Sword/CD1", "/r/Sword", 1),
        ("/r/Sword/cd 02", "/r/Sword", 2),
        ("/r/Sword/Disc 3", "/r/Sword", 3),
        ("/r/Sword/disk-4", "/r/Sword", 4),
        ("/r/Sword (Disc 5)", "/r/Sword", 5),
        ("/r/Sword - CD 6", "/r/Sword", 6),
        ("/r/Sword", "/r/Sword", None),
        ("/r/Discworld 1", "/r/Discworld 1", None),
        ("/r/ABCD1", "/r/ABCD1", None),
    ],
)
def test_folders_of_discs(folder: str, book: str, disc: int | None) -> None:
    assert book_folder(folder) == (book, disc)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/r", PathNames("r")),
        ("/r/Emma", PathNames("Emma")),
        ("/r/Austen/Emma", PathNames("Emma", "Austen")),
        ("/r/Leckie/Radch/Sword", PathNames("Sword", "Leckie", "Radch")),
        ("/r/Leckie/Radch/2 - Sword", PathNames("Sword", "Leckie", "Radch", 2)),
        ("/r/Leckie/Radch/Book 2.5 - Sword", PathNames("Sword", "Leckie", "Radch", 2.5)),
        ("/r/Leckie/Radch/02. Sword", PathNames("Sword", "Leckie", "Radch", 2)),
        ("/r/Leckie/Radch/Book 3", PathNames("Book 3", "Leckie", "Radch", 3)),
        ("/r/x/Leckie/Radch/Sword", PathNames("Sword", "Leckie", "Radch")),
        ("/r/Orwell/1984", PathNames("1984", "Orwell")),
    ],
)
def test_names_by_path(path: str, names: PathNames) -> None:
    assert names_of("/r", path) == names


@pytest.mark.parametrize(
    ("files", "is_book"),
    [
        (["01.mp3", "02.mp3"], True),
        (["Chapter One.mp3", "Epilogue.mp3"], True),
        (["Emma 1.mp3", "Emma 2.mp3"], True),
        (["emma - part 1.mp3"], True),
        (["Emma.m4b"], True),
        (["jane austen_emma_64kb.mp3"], True),
        (["Persuasion.m4b"], False),
        (["Book 1.mp3", "Book 2.mp3"], False),
        (["Emma.m4b", "Persuasion.m4b"], False),
    ],
)
def test_whether_a_folder_is_a_book(files: list[str], is_book: bool) -> None:
    assert is_book_folder("/r/Emma", files) is is_book


def test_a_folder_with_the_number_of_its_only_disc() -> None:
    assert tagged_disc_folder("/r/Sword/1", {1}) == "/r/Sword"
    assert tagged_disc_folder("/r/Sword 02", {2}) == "/r/Sword"
    for discs in ({1, 2}, {0}, {3}, set[int]()):
        assert tagged_disc_folder("/r/Sword/1", discs) == "/r/Sword/1"


def shown(admin: httpx.Client) -> list[tuple[Any, ...]]:
    return [
        (each["title"], each["author_name"], each["series_name"], each["series_position"])
        for each in books(admin)
    ]


@pytest.mark.parametrize("folders", [("CD1", "CD2"), ("Disc 1", "Disc 2"), ("1", "2")])
@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_discs_are_one_book(
    service: LibraryService, admin: httpx.Client, folders: tuple[str, str]
) -> None:
    """They were two books, which no call could join."""
    root = service.roots[0] / "Leckie" / "Sword"
    for number, folder in enumerate(folders, 1):
        for track in ("1", "2"):
            tags = {"album": "Sword", "track": track, "discnumber": f"{number}/2"}
            write_audio(root / folder / f"0{track}.flac", 5, tags=tags)
    (root / "cover.png").write_bytes(png(1, 2, 3))
    assert "4 added" in scan(admin)[-1]
    [book] = books(admin)
    found = [Path(each["file_path"]).relative_to(root) for each in segments(admin, book)]
    assert [str(each) for each in found] == [
        f"{folder}/0{track}.flac" for folder in folders for track in (1, 2)
    ]
    assert book["cover_url"] and book["title"] == "Sword"
    assert "4 unchanged" in scan(admin)[-1] and len(books(admin)) == 1


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_untagged_discs_are_one_book_in_their_order(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0] / "Leckie" / "Sword"
    for number in (1, 2, 10):
        write_audio(root / f"CD {number}" / "01.ogg", number, tags={})
    scan(admin)
    assert shown(admin) == [("Sword", "Leckie", None, None)]
    [book] = books(admin)
    assert [each["duration_seconds"] for each in segments(admin, book)] == [1, 2, 10]


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_untagged_files_have_author_and_series_of_their_folders(
    service: LibraryService, admin: httpx.Client
) -> None:
    """They were one book named like the series, without an author."""
    root = service.roots[0]
    for number in (1, 2, 3):
        write_audio(root / "Leckie" / "Radch" / f"Book {number}.ogg", 5, tags={})
    for track in (1, 2):
        write_audio(root / "Austen" / "Emma" / f"0{track}.ogg", 5, tags={})
    write_audio(root / "loose.ogg", 5, tags={})
    for name in ("dune", "emma"):
        write_audio(root / "mixed" / f"{name}.m4b", 5, tags={"title": f"{name} by title"})
    scan(admin)
    assert sorted(shown(admin), key=lambda names: str(names[0]).casefold()) == [
        ("Book 1", "Leckie", "Radch", 1),
        ("Book 2", "Leckie", "Radch", 2),
        ("Book 3", "Leckie", "Radch", 3),
        ("dune by title", "mixed", None, None),
        ("Emma", "Austen", None, None),
        ("emma by title", "mixed", None, None),
        ("loose", None, None, None),
    ]
    assert "0 added" in scan(admin, force_update=True)[-1] and len(books(admin)) == 7


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_tags_come_before_folders(service: LibraryService, admin: httpx.Client) -> None:
    path = service.roots[0] / "Fantasy" / "Big" / "Emma" / "01.ogg"
    write_audio(path, 5, tags={"album": "Emma", "artist": "Austen"})
    scan(admin)
    assert shown(admin) == [("Emma", "Austen", None, None)]


def test_a_book_whose_files_all_moved_to_another_is_binned_with_its_places(
    service: LibraryService, admin: httpx.Client
) -> None:
    """It stayed listed with the duration 0, and its listeners' places stayed with it."""
    root = service.roots[0]
    for number, name in enumerate(("one", "one", "two", "two"), 1):
        tags = {**TAGS, "track": str(number), "title": f"Part {number}"}
        write_audio(root / name / f"{number}.wav", 10, tags=tags)
    scan(admin)
    kept, emptied = sorted(books(admin), key=lambda book: segments(admin, book)[0]["file_path"])
    place = {"segment_id": segments(admin, emptied)[1]["id"], "position_seconds": 4}
    assert admin.post(f"/books/{emptied['id']}/position", json=place).status_code < 300
    assert admin.post(f"/books/{emptied['id']}/bookmarks", json=place).status_code == 201
    for path in (root / "two").iterdir():
        path.rename(root / "one" / path.name)
    lines = scan(admin)
    assert "2 moved" in lines[-1] and any("it is in the bin" in line for line in lines)
    [book] = books(admin)
    assert (book["id"], book["duration"]) == (kept["id"], 40)
    binned = admin.get("/books/soft-deleted").json()["data"]["items"]
    assert [each["id"] for each in binned] == [emptied["id"]]
    state = admin.get(f"/books/{kept['id']}/state").json()["data"]
    assert (state["last_segment_id"], state["position_seconds"]) == (place["segment_id"], 4)
    assert state["progress_pct"] == 85.0
    [mark] = admin.get(f"/books/{kept['id']}/bookmarks").json()["data"]["items"]
    assert mark["segment_id"] == place["segment_id"]
    assert "4 unchanged" in scan(admin)[-1]
