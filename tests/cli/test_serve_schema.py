"""`keyhouse serve module:SCHEMA`: from the working folder, with errors of one sentence."""

import shutil
from pathlib import Path

import httpx
import pytest

from tests.serve.support.serve_process import serving
from tests.service.schema_service.support import recipes
from tests.support.program import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a schema in `recipes.py`."""
    shutil.copy(recipes.__file__, tmp_path / "recipes.py")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("recipes:NOPE", "'recipes:NOPE' was not found"),
        ("nothing:BOX", "'nothing:BOX' was not found"),
        ("recipes:Recipe", "neither a Schema nor a service function"),
        ("recipes:SMALL", "was not found"),
    ],
)
def test_a_wrong_module_or_name_is_one_sentence(folder: Path, name: str, sentence: str) -> None:
    failed = run("serve", name, "--nats", "off", cwd=folder, code=2)
    assert sentence in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (folder / "keyhouse-data").exists()


def test_a_schema_of_the_working_folder_is_served(folder: Path) -> None:
    with serving(folder, "recipes:BOX", "--nats", "off") as process:
        assert process.get("/ready").status_code == 200
        assert process.get("/recipes/openapi.json").json()["info"]["title"] == "Recipes"
        refused = process.get("/recipes/records/recipe")
        assert refused.status_code == 401
        assert (folder / "data" / "recipes.db").exists()
        assert httpx.get(process.http + "/recipes/docs").status_code == 200


def test_a_setting_of_an_unknown_record_stops_the_start(folder: Path) -> None:
    (folder / "keyhouse.toml").write_text("[recipes.records.recipies]\nhttp = false\n")
    failed = run(
        "serve", "recipes:BOX", "--nats", "off", "--http", "127.0.0.1:0", cwd=folder, code=1
    )
    assert "recipes.records.recipies" in failed.stderr
    assert "Traceback" not in failed.stderr
