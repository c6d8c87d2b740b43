"""Sources of settings, their precedence, invalid ones, and the location of each system's rows."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from keyhouse.cli.commands.serve import serve
from keyhouse.errors import UsageError
from keyhouse.serve import server
from keyhouse.service.spec import ServiceSpec
from keyhouse.settings.engine_urls import default_url, url_of
from keyhouse.settings.settings import Address, ServerSettings
from keyhouse.settings.sources import FILE, LoadedSettings, load_settings
from tests.serve.support import jars

SYSTEMS = ("rosey", "streamkit")


def gathered(
    folder: Path,
    flags: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    file: str | None = None,
) -> LoadedSettings:
    if file is not None:
        (folder / FILE).write_text(file)
    return load_settings(
        flags or {},
        environment or {},
        Path(FILE) if file is not None else None,
        systems=SYSTEMS,
        served=SYSTEMS,
    )


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    file = 'data = "of file"\nhttp = "127.0.0.1:1"\nnats_port = 1\ndrain_seconds = 1\n'
    environment = {"KEYHOUSE_HTTP": "127.0.0.1:2", "KEYHOUSE_NATS_PORT": "2", "OTHER": "3"}
    settings = gathered(tmp_path, {"nats_port": 3, "engine": None}, environment, file).settings
    assert (settings.data, settings.http, settings.nats_port) == ("of file", "127.0.0.1:2", 3)
    assert (settings.drain_seconds, settings.engine) == (1.0, None)


def test_no_settings_are_the_defaults(tmp_path: Path) -> None:
    assert gathered(tmp_path).settings == ServerSettings()


@pytest.mark.parametrize("text", ["3", "auto"])
def test_workers_are_a_number_or_one_for_each_core_of_this_process(
    tmp_path: Path, text: str
) -> None:
    settings = gathered(tmp_path, {"workers": text}).settings
    most = 3 if text == "3" else os.cpu_count() or 1
    assert 1 <= settings.worker_count <= most
    for wrong in ("0", "65", "many"):
        with pytest.raises(UsageError, match="workers"):
            gathered(tmp_path, {"workers": wrong})


def test_a_file_in_the_current_folder_is_read_by_default(tmp_path: Path) -> None:
    (tmp_path / "keyhouse.toml").write_text("nats_port = 7")
    assert gathered(tmp_path).settings.nats_port == 7


def test_the_environment_names_another_file_and_a_flag_overrides_it(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("nats_port = 1")
    (tmp_path / "two.toml").write_text("nats_port = 2")
    named = {"KEYHOUSE_CONFIG": "one.toml"}
    assert load_settings({}, named, None, systems=()).settings.nats_port == 1
    assert load_settings({}, named, Path("two.toml"), systems=()).settings.nats_port == 2


def test_each_system_has_its_table_and_may_have_its_engine(tmp_path: Path) -> None:
    file = '[rosey]\nsweep_seconds = 5\nengine = "memory:"\n[streamkit]\njwt_secret = "of file"\n'
    given = gathered(tmp_path, {}, {"KEYHOUSE_STREAMKIT_JWT_SECRET": "of environment"}, file)
    assert given.tables == {
        "rosey": {"sweep_seconds": 5},
        "streamkit": {"jwt_secret": "of environment"},
    }
    assert given.engines == {"rosey": "memory:"}
    assert gathered(tmp_path, {}, {"KEYHOUSE_ROSEY_ENGINE": "sqlite:x"}).engines == {
        "rosey": "sqlite:x"
    }


def test_the_http_table_may_set_the_address(tmp_path: Path) -> None:
    file = '[http]\nlisten = "127.0.0.1:9"\ncors_origins = ["https://a"]\n'
    given = gathered(tmp_path, {}, {"KEYHOUSE_HTTP_SLOW_SECONDS": "2"}, file)
    assert given.settings.http == "127.0.0.1:9"
    assert given.http == {"cors_origins": ["https://a"], "slow_seconds": "2"}
    assert gathered(tmp_path, {"http": "off"}, {}, file).settings.http == "off"


@pytest.mark.parametrize(
    ("own", "drains"), [({}, 5), ({"drain_seconds": "2"}, 2), ({"drain_seconds": "9"}, 5)]
)
def test_the_http_table_may_shorten_the_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, str], drains: float
) -> None:
    """Regression: the setting was read and checked, but not used."""
    logged: dict[str, Any] = {}
    monkeypatch.setattr(server, "listening", lambda app, bound, **named: logged.update(named))
    environment = {f"KEYHOUSE_HTTP_{name.upper()}": text for name, text in own.items()}
    served = server.Server(
        gathered(tmp_path, {}, {"KEYHOUSE_DRAIN_SECONDS": "5", **environment}), {}
    )
    with socket.socket() as bound:
        served.http_listener([], bound, served.read_settings()[0])
    assert logged["drain_seconds"] == drains


def test_systems_are_separated_by_commas_in_the_environment() -> None:
    assert (
        load_settings(
            {}, {"KEYHOUSE_SYSTEMS": "rosey, streamkit"}, None, systems=()
        ).settings.systems
        == SYSTEMS
    )


def test_variables_that_an_orchestrator_injects_are_ignored() -> None:
    injected = {
        "KEYHOUSE_PORT": "tcp://10.0.0.1:8080",
        "KEYHOUSE_SERVICE_HOST": "10.0.0.1",
        "KEYHOUSE_PORT_80_TCP": "x",
    }
    assert load_settings({}, injected, None, systems=()).settings == ServerSettings()


@pytest.mark.parametrize(
    ("environment", "file", "sentence", "fields"),
    [
        (
            {"KEYHOUSE_DATE": "x"},
            None,
            "Unknown setting",
            {"setting": "KEYHOUSE_DATE", "nearest": "KEYHOUSE_DATA"},
        ),
        (
            {},
            "natsport = 1",
            "Unknown setting",
            {"setting": "natsport", "nearest": "nats_port", "source": FILE},
        ),
        (
            {},
            "[rosie]\na = 1",
            "Unknown setting",
            {"setting": "rosie", "nearest": "[rosey]", "source": FILE},
        ),
        ({}, "rosey = 1", "are a table", {"setting": "rosey", "source": FILE}),
        (
            {},
            "http = 80",
            "Invalid setting",
            {"setting": "http", "reason": "Expected `str`, got `int`", "source": FILE},
        ),
        (
            {"KEYHOUSE_NATS_PORT": "x"},
            None,
            "Invalid setting",
            {
                "setting": "nats_port",
                "reason": "Expected `int`, got `str`",
                "source": "KEYHOUSE_NATS_PORT",
            },
        ),
        (
            {"KEYHOUSE_LOG_LEVEL": "loud"},
            "log_level = 'info'",
            "Invalid setting",
            {
                "setting": "log_level",
                "reason": "Invalid enum value 'loud'",
                "value": "loud",
                "known": ["debug", "error", "info", "warning"],
                "source": "KEYHOUSE_LOG_LEVEL",
            },
        ),
        (
            {"KEYHOUSE_HTTP": "8080"},
            None,
            "give HOST:PORT",
            {"http": "8080", "source": "KEYHOUSE_HTTP"},
        ),
        (
            {"KEYHOUSE_HTTP": "host:99999"},
            None,
            "give HOST:PORT",
            {"http": "host:99999", "source": "KEYHOUSE_HTTP"},
        ),
        (
            {"KEYHOUSE_NATS": "http://a"},
            None,
            "give nats://host:4222",
            {"nats": "http://a", "source": "KEYHOUSE_NATS"},
        ),
        (
            {"KEYHOUSE_DATA": ""},
            None,
            "Empty setting",
            {"setting": "data", "source": "KEYHOUSE_DATA"},
        ),
        (
            {"KEYHOUSE_ENGINE": ""},
            None,
            "Empty setting",
            {"setting": "engine", "source": "KEYHOUSE_ENGINE"},
        ),
        (
            {
                "KEYHOUSE_ROSEY_ENGINE": ""
            },  # of a container whose URL was not filled in: rows went into a file within it
            None,
            "Empty setting",
            {"setting": "rosey.engine", "source": "KEYHOUSE_ROSEY_ENGINE"},
        ),
        ({"KEYHOUSE_NATS": "off", "KEYHOUSE_HTTP": "off"}, None, "both off", {}),
        ({"KEYHOUSE_CONFIG": "gone.toml"}, None, "does not exist", {"file": "gone.toml"}),
    ],
)
def test_an_invalid_setting_is_rejected_by_name(
    tmp_path: Path,
    environment: dict[str, str],
    file: str | None,
    sentence: str,
    fields: dict[str, object],
) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        gathered(tmp_path, {}, environment, file)
    assert refused.value.fields == fields


def test_an_invalid_setting_is_rejected_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: an operator looked for it in the file, and a variable of the container had set
    it.
    """
    monkeypatch.setattr("keyhouse.serve.process.set_up_logs", lambda *_: None)
    (tmp_path / FILE).write_text("[rosey]\nquota_keys = -1\nslow_seconds = 1\n")
    with pytest.raises(UsageError) as of_file:
        serve()
    monkeypatch.setenv("KEYHOUSE_ROSEY_QUOTA_KEYS", "many")
    with pytest.raises(UsageError) as of_variable:
        serve()
    with pytest.raises(UsageError) as of_flag:
        gathered(tmp_path, {"nats_port": 70_000}, {"KEYHOUSE_NATS_PORT": "1"})
    logged = [
        (refused.value.fields["setting"], refused.value.fields["source"])
        for refused in (of_file, of_variable, of_flag)
    ]
    assert logged == [
        ("rosey.quota_keys", FILE),
        ("rosey.quota_keys", "KEYHOUSE_ROSEY_QUOTA_KEYS"),
        ("nats_port", "--nats-port"),
    ]


def test_a_file_that_is_not_toml_is_rejected_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not valid TOML") as refused:
        gathered(tmp_path, file='data = "x"\nnats_port = \n')
    assert "line 2" in str(refused.value.fields["at"])


@pytest.mark.parametrize("table", ["[http]\n", "[ http ]\n", "[http.other]\n", "http.x = 1\n"])
def test_an_address_beside_the_table_of_the_same_name_is_rejected_with_the_key_to_write(
    tmp_path: Path, table: str
) -> None:
    """The file was "not valid TOML": "Cannot overwrite a value"."""
    with pytest.raises(UsageError, match="address into the table, as `listen`"):
        gathered(tmp_path, file=f'http = "127.0.0.1:1"\n{table}')


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080), "http://127.0.0.1:8080"),
        ("[::1]:0", Address("::1", 0), "http://[::1]:0"),
        ("localhost:1", Address("localhost", 1), "http://localhost:1"),
    ],
)
def test_addresses_are_parsed(text: str, address: Address, url: str) -> None:
    assert ServerSettings(http=text).http_address == address
    assert address.url == url


def test_no_secret_is_shown() -> None:
    settings = ServerSettings(
        engine="postgresql://ann:hush@db/x", nats="nats://tok:hush@n:4222", nats_port=4222
    )
    assert settings.for_log() == {"engine": "postgresql://db/x", "nats": "nats://n:4222"}


# Placing


@pytest.mark.parametrize(
    ("system", "url", "placed"),
    [
        ("rosey", "sqlite:all.db", "sqlite:all.db?layout=rosey"),
        (
            "rosey",
            "postgresql://db/x?sslmode=require",
            "postgresql://db/x?sslmode=require&layout=rosey",
        ),
        ("streamkit", "postgresql://db/{system}", "postgresql://db/streamkit"),
        (
            "streamkit",
            "postgresql://db/x?layout=mine_{system}",
            "postgresql://db/x?layout=mine_streamkit",
        ),
        ("rosey", "rocksdb:folder/", "rocksdb:folder/rosey"),
        ("rosey", "nats://n:4222/?replicas=3", "nats://n:4222/?replicas=3&bucket=rosey"),
        ("playlist", "nats://n:4222", "nats://n:4222?prefix="),
        (
            "history",
            "dynamodb://kh?region=eu-west-1",
            "dynamodb://kh-history?region=eu-west-1&layout=history",
        ),
        ("history", "dynamodb://kh?layout=flat", "dynamodb://kh-history?layout=flat"),
        ("rosey", "memory:", "memory:"),
    ],
)
def test_each_system_has_its_own_location_in_a_shared_engine(
    system: str, url: str, placed: str
) -> None:
    assert url_of(system, url, alone=False) == placed


def test_the_own_engine_of_a_system_has_the_tables_that_its_url_names() -> None:
    """The URL of the guide, with the table `history`, created `history-history`."""
    url = "dynamodb://history?region=eu-central-1&layout=history"
    loaded = load_settings(
        {"data": "d"}, {"KEYHOUSE_HISTORY_ENGINE": url}, None, systems=["history"]
    )
    assert loaded.engine_url("history", alone=False) == url


@pytest.mark.parametrize(
    "url", ["postgresql://db/x?layout=mine", "nats://n/?bucket=mine", "nats://n/?prefix=mine"]
)
def test_an_explicit_location_can_be_used_by_one_system_only(url: str) -> None:
    assert url_of("rosey", url, alone=True) == url
    with pytest.raises(UsageError, match="shared by several systems"):
        url_of("rosey", url, alone=False)


def test_the_default_is_a_file_per_system_with_the_tables_of_its_document() -> None:
    assert default_url("rosey", Path("d")) == "sqlite:d/rosey.db?layout=rosey"
    assert default_url("streamkit", Path("d")) == "sqlite:d/streamkit.db?layout=streamkit"


@pytest.mark.parametrize(
    "file",
    [
        "[streamkit]\njwt_secrt = 1\n",
        "[rosey]\nsweep_seconds = 'often'\n",
        "[rosey]\nqueue = 'two words'\n",
        "[history]\njwt_algorithm = 'RS256'\njwks = 'http://example.org/keys'\n",
        "systems = ['rosey']\n[streamkit]\njwt_secrt = 1\n",
        "[audiobooks]\nengin = 'memory:'\n",
        "[http]\nbody_max = 1\n",
        "nats_credentials = 'gone.creds'\n",
    ],
)
def test_an_invalid_setting_is_rejected_before_anything_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Regression: engines were opened first, and a folder with their files was left."""
    monkeypatch.setattr("keyhouse.serve.process.set_up_logs", lambda *_: None)
    (tmp_path / "keyhouse.toml").write_text(file)
    with pytest.raises(
        UsageError, match=r"Unknown setting|Invalid setting|can't be opened|with https"
    ):
        serve()
    assert [each.name for each in tmp_path.iterdir()] == ["keyhouse.toml"]


def test_a_function_that_returns_no_service_spec_is_rejected_by_name(tmp_path: Path) -> None:
    """Regression: it ended in a traceback."""

    async def part(_: Any) -> list[ServiceSpec]:
        return [ServiceSpec(name="mine")]

    async def start() -> None:
        async with server.Server(given, {"mine": cast(Any, part)}):
            raise AssertionError

    given = gathered(tmp_path, {"http": "127.0.0.1:0", "nats": "off", "engine": "memory:"})
    with pytest.raises(UsageError, match="a function that returns a ServiceSpec") as refused:
        asyncio.run(start())
    assert refused.value.fields == {"system": "mine", "returned": "list"}


@pytest.mark.parametrize(
    ("spelled", "durable"), [("rocksdb:rows", True), ("rocksdb:///rows", True), ("memory:", False)]
)
def test_a_shared_engine_is_created_and_one_that_is_not_durable_is_warned_of(
    tmp_path: Path, spelled: str, durable: bool
) -> None:
    """Regression: `--engine rocksdb:rows` was rejected, because the parent of each system's folder
    did not exist; and a NATS server that does not sync was mentioned in one field of a log line.
    """

    async def start() -> None:
        async with server.Server(given, {"jars": jars.service}):
            pass

    given = gathered(tmp_path, {"http": "127.0.0.1:0", "nats": "off", "engine": spelled})
    with capture_logs() as logs:
        asyncio.run(start())
    assert (tmp_path / "rows" / "jars").is_dir() is durable
    warned = [
        line for line in logs if line["log_level"] == "warning" and "may be lost" in line["event"]
    ]
    assert [line["system"] for line in warned] == ([] if durable else ["jars"])


def test_an_engine_that_cannot_be_opened_is_reported_with_the_source_of_its_url(
    tmp_path: Path,
) -> None:
    async def start() -> None:
        async with server.Server(given, {"jars": jars.service}):
            raise AssertionError

    given = gathered(
        tmp_path, {"http": "127.0.0.1:0", "nats": "off"}, {"KEYHOUSE_ENGINE": "mysql://db"}
    )
    with pytest.raises(UsageError, match="Unknown scheme in the engine URL") as refused:
        asyncio.run(start())
    assert refused.value.fields["source"] == "KEYHOUSE_ENGINE"
