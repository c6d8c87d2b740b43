"""The secret of a service that was given none: random, created once, readable by its owner only."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keyhouse.auth import JwtSettings
from keyhouse.auth.secret import load_or_create_secret
from keyhouse.errors import UsageError


def test_a_secret_is_created_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "streamkit"
    secret = load_or_create_secret(folder)
    assert len(secret) == 64 and load_or_create_secret(folder) == secret
    assert [path.name for path in folder.iterdir()] == ["jwt.secret"]
    assert stat.S_IMODE((folder / "jwt.secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700, (
        "a token made before the service first ran left it open to all"
    )
    assert load_or_create_secret(tmp_path / "other") != secret


def test_an_unusable_folder_is_rejected_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    for folder in (tmp_path / "data", tmp_path / "data" / "below"):
        with pytest.raises(UsageError, match="cannot be read or created") as refused:
            load_or_create_secret(folder)
        assert refused.value.fields["file"] == str(folder / "jwt.secret")


def test_concurrent_starts_get_the_same_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        secrets = list(pool.map(lambda _: load_or_create_secret(tmp_path), range(64)))
    assert len(set(secrets)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["jwt.secret"]


def test_a_secret_that_other_users_can_read_is_rejected(tmp_path: Path) -> None:
    secret = load_or_create_secret(tmp_path)
    for mode in (0o640, 0o604, 0o620):
        (tmp_path / "jwt.secret").chmod(mode)
        with pytest.raises(UsageError, match="Other users can read") as refused:
            load_or_create_secret(tmp_path)
        assert secret not in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"short\n", b"\xff" * 40])
def test_a_file_without_a_secret_is_rejected(tmp_path: Path, text: bytes) -> None:
    load_or_create_secret(tmp_path)
    (tmp_path / "jwt.secret").write_bytes(text)
    with pytest.raises(UsageError):
        load_or_create_secret(tmp_path)


def test_a_missing_secret_is_not_created_with_make_false(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no secret yet"):
        load_or_create_secret(tmp_path / "data", make=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("secret", ["", "secret", "x" * 31])
def test_a_short_secret_is_rejected_and_not_shown(secret: str) -> None:
    with pytest.raises(UsageError, match="openssl rand -hex 32") as refused:
        JwtSettings(jwt_secret=secret)
    assert secret == "" or f"'{secret}'" not in str(refused.value)


@pytest.mark.parametrize("secret", ["x" * 32, "ab" * 64, "1234567" * 9])
def test_a_secret_of_few_different_characters_is_rejected_and_not_shown(secret: str) -> None:
    with pytest.raises(UsageError, match="easily guessed") as refused:
        JwtSettings(jwt_secret=secret)
    assert secret not in str(refused.value)
    JwtSettings(jwt_secret="éàüöñçßø" * 2)


def test_contradictory_settings_are_rejected() -> None:
    wrong = [
        {"jwks": "keys.json"},
        {"jwt_algorithm": "RS256"},
        {"jwt_algorithm": "RS256", "jwks": "keys.json", "jwt_secret": "0123456789abcdef" * 2},
        {"jwt_tenant_claims": ()},
        {"jwt_cookie": "a=b"},
        {"jwt_leeway_seconds": 3_600},
        {"jwt_leeway_seconds": -1},
        {"jwks_cache_seconds": 0},
    ]
    for settings in wrong:
        with pytest.raises(UsageError):
            JwtSettings(**settings)  # type: ignore[arg-type]  # of several types
