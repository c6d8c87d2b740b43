"""`keyhouse playlist` as an operator uses it: in the service's folder, with its settings file."""

import json
from pathlib import Path

from tests.serve.support.serve_process import environment, serving
from tests.support.program import run as run_program


def keyhouse(folder: Path, *arguments: str, status: int = 0, **settings: str) -> str:
    ran = run_program(*arguments, cwd=folder, code=status, only=environment(**settings))
    return ran.stdout + ran.stderr


def test_commands_find_the_data_folder_of_the_settings_file(tmp_path: Path) -> None:
    """They looked into `keyhouse-data`, whatever `data` was in keyhouse.toml."""
    (tmp_path / "keyhouse.toml").write_text('data = "elsewhere"\n')
    items = [{"video_id": "a", "title": "A", "manifest_url": "https://m/a"}]
    (tmp_path / "catalog.json").write_text(json.dumps(items))
    (tmp_path / "empty.json").write_text("[]")
    with serving(tmp_path, "playlist", data="elsewhere") as served:

        def run(*arguments: str, status: int = 0) -> str:
            return keyhouse(tmp_path, "playlist", *arguments, status=status)

        assert "1 item published" in run("refresh", "--file", "catalog.json")
        assert run("admin", "add", "Ada") == "Admins: Ada.\n"
        assert run("admin", "add", "Eve") == "Admins: Ada, Eve.\n"
        assert run("admin", "remove", "eve") == "Admins: Ada.\n"
        assert run("blessed", "list") == "Blessed: nobody.\n"
        assert run("blessed", "add", "Bob") == "Blessed: Bob.\n"
        assert json.loads(run("blessed", "list", "--json")) == {"blessed": ["Bob"]}
        assert run("blessed", "remove", "BOB") == "Blessed: nobody.\n"
        assert "does not have this user" in run("blessed", "remove", "Bob", status=3)
        assert "no control characters" in run("blessed", "add", "a\nb", status=1)
        assert "has no items" in run("refresh", "--file", "empty.json", status=1)
        by_nats = ("--store", served.nats, "--as", "Ada")
        refused = run("refresh", "--file", "empty.json", *by_nats, status=1)
        assert "has no items" in refused
        assert "0 items published" in run(
            "refresh", "--file", "empty.json", "--allow-empty", *by_nats
        )
        assert run("blessed", "add", "Bob", "--store", served.nats) == "Blessed: Bob.\n"
    assert not (tmp_path / "keyhouse-data").exists()
