"""`keyhouse serve module:SCHEMA`: from the working folder, with errors of one sentence."""

import json
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


def test_tokens_and_data_commands_work_for_a_served_schema(folder: Path) -> None:
    token = run(
        "token", "recipes:BOX", "--space", "ann", "--data", "data", cwd=folder
    ).stdout.strip()
    reader = ("token", "recipes:BOX", "--space", "ann", "--scope", "read", "--data", "data")
    wrong = run("token", "recipes:BOX", "--space", "ann", "--scope", "admin", cwd=folder, code=1)
    assert "Unknown scope" in wrong.stderr
    with serving(folder, "recipes:BOX", "--nats", "off") as process:
        value = '{"title": "Pie", "slug": "pie", "minutes": 3}'
        service = ("--service", process.http, "--token", token)
        run("put", "recipes:BOX", "recipe:pie", value, *service, cwd=folder)
        run("put", "recipes:BOX", "draft:ann:x", '{"text": "a"}', *service, cwd=folder)
        got = run("get", "recipes:BOX", "recipe:pie", *service, "--json", cwd=folder)
        assert json.loads(got.stdout)["value"]["minutes"] == 3
        listed = run("list", "recipes:BOX", *service, cwd=folder).stdout
        assert listed.index("draft:ann:x") < listed.index("recipe:pie")
        only = run("token", *reader[1:], cwd=folder).stdout.strip()
        refused = ("--service", process.http, "--token", only)
        denied = run("put", "recipes:BOX", "recipe:pie", value, *refused, cwd=folder, code=None)
        assert denied.returncode != 0 and "scope" in denied.stderr
        run("delete", "recipes:BOX", "draft:ann:x", *service, "--yes", cwd=folder)
        assert run("count", "recipes:BOX", *service, cwd=folder).stdout.strip() == "1"
        process.end()
    stored = run("list", "recipes:BOX", "--data", "data", "--space", "ann", cwd=folder).stdout
    assert "recipe:pie" in stored


def test_describe_names_tables_buckets_and_attributes(folder: Path) -> None:
    rosey = run("describe", "rosey", cwd=folder).stdout
    assert "plugin_kv_storage" in rosey
    layouts = json.loads(run("describe", "recipes:BOX", "--json", cwd=folder).stdout)["layouts"]
    assert layouts["sql"]["table"] == "recipes_rows"
    assert layouts["jetstream"] == {"bucket": "recipes"}


def test_the_page_at_the_root_says_what_to_try(folder: Path) -> None:
    with serving(folder, "recipes:BOX", "--nats", "off") as process:
        page = process.get("/")
        assert "Recipes of a person." in page.text
        assert "/recipes/records/recipe" in page.text and "keyhouse token" in page.text
        # its examples had the default port, on whichever it listened
        assert f"{process.http}/recipes/schema" in page.text
        odd = httpx.get(process.http, headers={"Host": "<b>"}, trust_env=False)
        assert "<b>" not in odd.text and "127.0.0.1:8080/recipes/schema" in odd.text
