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
        ("recipes:NOPE", "It has recipes:BOX."),
        ("nothing:BOX", "No module named 'nothing'. Run this in the folder of nothing.py."),
        ("recipes:Recipe", "neither a Schema nor a System nor a service"),
        ("recipes:RECIPE", "but a Record. It has recipes:BOX."),
        ("recipes:SMALL", "was not found"),
        ("recipes.py:BOX", "names a file: name its module, as in recipes:BOX, in the folder of"),
        ("./recipes.py:BOX", "names a file: name its module, as in recipes:BOX, in the folder of"),
    ],
)
def test_a_wrong_module_or_name_is_one_sentence(folder: Path, name: str, sentence: str) -> None:
    failed = run("serve", name, "--nats", "off", cwd=folder, code=2)
    assert sentence in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr
    assert not (folder / "keyhouse-data").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "from keyhouse import Record\n\nNOTE = Record(str, 'note:{id}', nmae='note')\n",
            "'bad:NOTES' can't be imported: bad.py, line 3: TypeError: Record.__init__() got an"
            " unexpected keyword argument 'nmae'.",
        ),
        ("x = (\n", "SyntaxError: '(' was never closed (bad.py, line 1)."),
        ("import absent_module\n", "'bad:NOTES' was not found: No module named 'absent_module'."),
    ],
)
def test_a_module_that_fails_is_one_sentence_with_its_line(
    tmp_path: Path, text: str, sentence: str
) -> None:
    """A misspelled keyword of a declaration printed a traceback."""
    (tmp_path / "bad.py").write_text(text)
    for command in ("describe", "serve"):
        failed = run(command, "bad:NOTES", cwd=tmp_path, code=2).stderr
        assert sentence in " ".join(failed.split()) and "Traceback" not in failed


def test_a_module_that_runs_its_program_on_import_gets_advice(tmp_path: Path) -> None:
    """It named a line of asyncio's `runners.py`. Programs of the guides end in this way."""
    (tmp_path / "bad.py").write_text("import asyncio\n\nasyncio.run(asyncio.sleep(0))\n")
    failed = " ".join(run("verify", "bad:NOTES", cwd=tmp_path, code=2).stderr.split())
    assert "'bad:NOTES' can't be imported: bad.py, line 3: RuntimeError: asyncio.run()" in failed
    assert 'Write `if __name__ == "__main__":` above it' in failed


def test_a_misspelled_system_is_named_with_the_nearest(tmp_path: Path) -> None:
    served = run("serve", "histroy", "--nats", "off", cwd=tmp_path, code=1).stderr
    assert "nearest='history'" in served and "module:NAME, as in board:BOARD" in served
    described = " ".join(run("describe", "histroy", cwd=tmp_path, code=2).stderr.split())
    assert "Did you mean history?" in described


def test_a_token_of_a_schema_needs_its_space(folder: Path) -> None:
    refused = run("token", "recipes:BOX", cwd=folder, code=1).stderr
    assert "Name the space: --space NAME." in refused and "--customer" not in refused


def test_a_schema_of_the_working_folder_is_served(folder: Path) -> None:
    with serving(folder, "recipes:BOX", "--nats", "off") as process:
        assert process.get("/ready").status_code == 200
        assert process.get("/recipes/openapi.json").json()["info"]["title"] == "Recipes"
        refused = process.get("/recipes/records/recipe")
        assert refused.status_code == 401
        assert (folder / "data" / "recipes.db").exists()
        assert httpx.get(process.http + "/recipes/docs", timeout=30).status_code == 200


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
        service = ("--store", process.http, "--token", token)
        run("put", "recipes:BOX", "recipe:pie", value, *service, cwd=folder)
        run("put", "recipes:BOX", "draft:ann:x", '{"text": "a"}', *service, cwd=folder)
        got = run("get", "recipes:BOX", "recipe:pie", *service, "--json", cwd=folder)
        assert json.loads(got.stdout)["value"]["minutes"] == 3
        listed = run("list", "recipes:BOX", *service, cwd=folder).stdout
        assert listed.index("draft:ann:x") < listed.index("recipe:pie")
        unsigned = run("list", "recipes:BOX", "--store", process.http, cwd=folder, code=1).stderr
        assert "requires a token" in unsigned
        assert "`keyhouse token recipes:BOX --space NAME` makes one" in unsigned
        elsewhere = run("token", *reader[1:-1], "other", cwd=folder).stdout.strip()
        foreign = ("--store", process.http, "--token", elsewhere)
        rejected = run("list", "recipes:BOX", *foreign, cwd=folder, code=1).stderr
        assert "signature is invalid" in rejected
        assert "new_token='keyhouse token recipes:BOX --space ann'" in rejected
        only = run("token", *reader[1:], cwd=folder).stdout.strip()
        refused = ("--store", process.http, "--token", only)
        denied = run("put", "recipes:BOX", "recipe:pie", value, *refused, cwd=folder, code=None)
        assert denied.returncode != 0 and "scope" in denied.stderr
        run("delete", "recipes:BOX", "draft:ann:x", *service, "--yes", cwd=folder)
        assert run("count", "recipes:BOX", *service, cwd=folder).stdout.strip() == "1"
        process.end()
    stored = run("list", "recipes:BOX", "--store", "data", "--space", "ann", cwd=folder).stdout
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
        odd = httpx.get(process.http, headers={"Host": "<b>"}, trust_env=False, timeout=30)
        assert "<b>" not in odd.text and "127.0.0.1:8080/recipes/schema" in odd.text


UNLISTED = """from keyhouse import Record, Schema, Space, Store, operation

NOTE = Record(str, "note:{id}", name="note")


@operation(access="write")
async def tidy(store: Store) -> None: ...


NOTES = Schema("notes", NOTE, space=Space("a person"))
"""


def test_an_operation_that_no_schema_lists_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(UNLISTED)
    failed = run("serve", "notes:NOTES", "--nats", "off", cwd=tmp_path, code=2).stderr
    assert "write operations=[tidy] in the Schema" in " ".join(failed.replace("│", "").split())
    assert not (tmp_path / "keyhouse-data").exists()
