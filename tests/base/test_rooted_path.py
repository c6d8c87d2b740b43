"""Names that lead out of a folder are rejected: nothing is opened or made by them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from keyhouse.rooted_path import open_below, open_folder_below

ODD = ["", ".", "..", "/", "/etc", "../x", "x/..", "x/y", "x/", "./x", "\0", "x\0y", "..\0"]
PLACES: dict[str, Callable[[str], list[str]]] = {
    "first": lambda odd: [odd, "x"],
    "middle": lambda odd: ["x", odd, "y"],
    "last": lambda odd: ["x", odd],
    "only": lambda odd: [odd],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_name_that_leads_elsewhere_is_rejected_before_anything_is_made(
    odd: str, place: str, tmp_path: Path
) -> None:
    root = tmp_path / "outer" / "root"
    (root / "x").mkdir(parents=True)
    (root / "x" / "y").write_text("file")
    before = sorted(tmp_path.rglob("*"))
    names = PLACES[place](odd)
    with pytest.raises(OSError, match="not a name"):
        open_below(root, names)
    for create in (False, True):
        rejected = pytest.raises(OSError, match="not a name")
        with rejected, open_folder_below(root, names, create=create):
            pass
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["...", " ..", ".. ", "..x", ".hidden", "\n", "x\\..\\y"])
def test_other_names_are_opened_below_their_root(name: str, tmp_path: Path) -> None:
    with open_folder_below(tmp_path, [name], create=True):
        pass
    (tmp_path / name / "file").write_text("x")
    os.close(open_below(tmp_path, [name, "file"]))
    assert (tmp_path / name).is_dir()
