"""`keyhouse token`: only the service of the same data folder accepts its tokens."""

import asyncio
import json
import stat
from pathlib import Path

import jwt
import pytest

from keyhouse.auth import Caller, JwtSettings, jwt_auth
from keyhouse.errors import TokenError
from keyhouse_history.settings import HistorySettings
from tests.support.program import run


def authenticate(token: str, data: Path, settings: JwtSettings | None = None) -> Caller:
    auth = jwt_auth(settings or JwtSettings(), data, system="streamkit")
    return asyncio.run(auth.authenticate([(b"authorization", b"Bearer " + token.encode())]))


def test_the_service_of_the_data_folder_accepts_the_token(tmp_path: Path) -> None:
    token = run("token", "streamkit", "--customer", "12345", cwd=tmp_path).stdout.strip()
    data = tmp_path / "keyhouse-data"
    assert authenticate(token, data) == Caller(tenant="12345", scopes=frozenset({"read", "write"}))
    assert stat.S_IMODE((data / "streamkit-jwt.secret").stat().st_mode) == 0o600
    with pytest.raises(TokenError, match="signature"):
        authenticate(token, tmp_path / "another")


def test_a_new_secret_is_noted_once_and_not_in_the_token(tmp_path: Path) -> None:
    """In a folder that no service uses, the token would be rejected without a reason to see."""
    command = ("token", "streamkit", "--customer", "12345")
    first, second = run(*command, cwd=tmp_path), run(*command, cwd=tmp_path)
    assert "keyhouse-data/streamkit-jwt.secret" in first.stderr and "--data" in first.stderr
    assert second.stderr == ""
    assert len(first.stdout.split()) == len(second.stdout.split()) == 1


def test_scopes_and_lifetime_are_options(tmp_path: Path) -> None:
    options = [
        "--customer",
        "12345",
        "--scope",
        "read",
        "--hours",
        "0.5",
        "--data",
        "here",
        "--json",
    ]
    made = json.loads(run("token", "streamkit", *options, cwd=tmp_path).stdout)
    assert (made["customer"], made["seconds"]) == ("12345", 1_800)
    assert authenticate(made["token"], tmp_path / "here").scopes == {"read"}


def test_an_operators_token_has_only_the_operators_scope(tmp_path: Path) -> None:
    made = json.loads(run("token", "history", "--operator", "--json", cwd=tmp_path).stdout)
    assert (made["operator"], made["system"], made["seconds"]) == (True, "history", 43_200)
    auth = jwt_auth(HistorySettings(), tmp_path / "keyhouse-data", system="history")
    caller = asyncio.run(
        auth.authenticate([(b"authorization", b"Bearer " + made["token"].encode())])
    )
    assert caller == Caller(tenant="operator", scopes=frozenset({"history.service"}))


def test_the_secret_of_the_environment_signs_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    monkeypatch.setenv("KEYHOUSE_STREAMKIT_JWT_SECRET", secret)
    token = run("token", "streamkit", "--customer", "12345", cwd=tmp_path).stdout.strip()
    assert authenticate(token, tmp_path, JwtSettings(jwt_secret=secret)).tenant == "12345"
    assert list(tmp_path.iterdir()) == [], "no secret is made where one is given"


def test_a_short_secret_is_rejected_without_printing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYHOUSE_STREAMKIT_JWT_SECRET", "hunter2")
    said = run("token", "streamkit", "--customer", "12345", cwd=tmp_path, code=1).stderr
    assert "too short" in said and "hunter2" not in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["streamkit", "--customer", "a b"], "Invalid tenant name"),
        (["streamkit", "--customer", "12_streamkit_notes"], "Invalid tenant name"),
        (["streamkit", "--customer", "12345", "--hours", "0"], "must be greater than 0"),
        (
            ["streamkit", "--customer", "12345", "--scope", "read", "--scope", "wirte"],
            "known=['read', 'write']",
        ),
        (["streamkit", "--operator"], "has no tokens for operators: for the Studio, name no"),
        (["history"], "Give either --customer ID or --operator."),
        (["streamkit"], "Give --customer ID."),
        (["rosey", "--operator"], "has no tokens: for the Studio, give --operator without"),
        # It has scopes, of its sessions, and was first asked for a customer.
        (["audiobooks"], "has no tokens: for the Studio, give --operator without"),
        (["nothing", "--customer", "12345"], "No such system"),
    ],
)
def test_invalid_arguments_are_rejected(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    assert sentence in run("token", *arguments, cwd=tmp_path, code=1).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "seconds"),
    [([], 43_200), (["--hours", "1"], 3_600), (["--days", "365"], 31_536_000)],
)
@pytest.mark.parametrize("of", [["streamkit", "--customer", "1"], ["--operator"]])
def test_the_lifetime_is_12_hours_unless_hours_or_days_are_given(
    tmp_path: Path, of: list[str], options: list[str], seconds: int
) -> None:
    """An overlay went dark after 12 hours, which no page said."""
    made = json.loads(run("token", *of, *options, "--json", cwd=tmp_path).stdout)
    assert made["seconds"] == seconds
    claims = jwt.decode(made["token"], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == seconds


def test_hours_and_days_exclude_each_other_and_a_year_is_the_limit(tmp_path: Path) -> None:
    both = run("token", "--operator", "--hours", "1", "--days", "1", cwd=tmp_path, code=1)
    assert "only one of --hours and --days" in both.stderr
    long = run("token", "--operator", "--days", "400", cwd=tmp_path, code=1)
    assert "at most a year" in long.stderr
