"""`keyhouse serve` as a program: ready line, requests, shutdown, and errors."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import nats
import pytest
from nats.aio.client import Client
from nats.errors import ConnectionClosedError, NoRespondersError

from keyhouse import open_engine
from keyhouse.nats.server import NatsServer
from keyhouse.testing.servers.postgres import postgres_server
from tests.docs.pages import DOCS, blocks
from tests.serve.support.serve_process import JARS, Serving, command, environment, refused, serving
from tests.support.engine_openers import OPENERS
from tests.support.polling import until, wait_until
from tests.support.program import run


async def put(client: Client, name: str, number: int | None) -> int | None:
    answer = await client.request("jars.put", json.dumps([name, number]).encode(), timeout=30)
    found: int | None = json.loads(answer.data)
    return found


async def once(serving: Serving, name: str, number: int | None) -> int | None:
    client = await nats.connect(serving.nats)
    try:
        return await put(client, name, number)
    finally:
        await client.close()


# Ready


def test_the_ready_line_has_the_addresses(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        assert set(running.line) == {"ready", "http", "nats"}
        assert running.line["ready"] is True
        assert re.fullmatch(r"http://127\.0\.0\.1:[1-9][0-9]*", running.http)
        assert re.fullmatch(r"nats://127\.0\.0\.1:[1-9][0-9]*", running.nats)
        assert asyncio.run(once(running, "jam", 7)) == 7
        assert running.get("/jars/jars/jam").json() == 7
        assert running.end() == 0
        assert running.output.read() == ""
    assert [line["event"] for line in running.log][-1] == "stopped"


def test_health_ready_and_metrics_are_served(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        assert running.get("/health").json()["status"] == "alive"
        assert running.get("/ready").json() == {"ready": True, "systems": {"jars": {"ready": True}}}
        asyncio.run(once(running, "jam", 7))
        page = running.get("/metrics")
        assert page.headers["content-type"].startswith("text/plain")
        assert 'keyhouse_engine_seconds_count{call="commit",system="jars"} 1.0' in page.text
        assert (
            'keyhouse_http_request_seconds_count{method="GET",route="/ready",status="200"} 1.0'
            in page.text
        )
        logged = set(
            re.findall(r"^# TYPE (keyhouse_\w+?) (?!gauge unknown)", page.text, re.MULTILINE)
        )
        documented = set(
            re.findall(r"^\| `(keyhouse_\w+)`", (DOCS / "serving.md").read_text(), re.MULTILINE)
        )
        assert {name for name in logged if not name.endswith("_created")} == documented


def test_a_system_that_is_not_ready_reports_why(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        (tmp_path / "data" / "broken").touch()
        answer = running.get("/ready")
        assert answer.status_code == 503
        assert answer.json() == {
            "ready": False,
            "systems": {
                "jars": {"ready": False, "code": "DATABASE_ERROR", "why": "The jars are broken."}
            },
        }
        assert running.get("/health").status_code == 200


def test_a_lost_nats_server_is_logged_and_reconnected(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "own")
    server.start()
    server.ready()
    with serving(tmp_path, JARS, "--nats", server.url, KEYHOUSE_NATS_PARTITIONS="on") as running:
        assert running.get("/ready").status_code == 200
        server.stop()
        _ready_until(running, 503, "The connection to NATS is lost")
        server.start()
        server.ready()
        _ready_until(running, 200)
        assert asyncio.run(once(running, "jam", 7)) == 7
        assert running.end() == 0
        lost = [line for line in running.log if line["event"] == "nats disconnected"]
        assert len(lost) == 1, "one warning, however many connections there are"
    server.stop()


def test_a_nats_server_that_hangs_is_not_ready(tmp_path: Path) -> None:
    """/ready returned 200 until the connection was given up, half a minute later."""
    server = NatsServer(tmp_path / "own")
    server.start()
    server.ready()
    with serving(tmp_path, JARS, "--nats", server.url) as running:
        assert running.get("/ready").status_code == 200
        server.pause()
        _ready_until(running, 503, "The NATS server does not answer.")
        server.resume()
        _ready_until(running, 200)
        assert asyncio.run(once(running, "jam", 7)) == 7
        assert running.end() == 0
    server.stop()


def _ready_until(running: Serving, status: int, why: str = "") -> None:
    """Wait for a status and its reason. A check on a busy machine may time out first."""

    def is_as_expected() -> bool:
        answer = running.get("/ready")
        reason = answer.json()["systems"]["jars"].get("why", "")
        return answer.status_code == status and str(reason).startswith(why)

    wait_until(is_as_expected)


def test_the_ready_line_is_text_without_json(tmp_path: Path) -> None:
    arguments = command(JARS, "--http", "127.0.0.1:0", "--nats-port", "0")
    with subprocess.Popen(
        arguments,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert re.fullmatch(
        r"keyhouse is ready: HTTP http://\S+, NATS nats://\S+\. Ctrl-C stops it\.\n", line
    )
    assert (tmp_path / "keyhouse-data").is_dir()


@pytest.mark.parametrize("listener", ["http", "nats"])
def test_a_listener_can_be_off(tmp_path: Path, listener: str) -> None:
    with serving(tmp_path, JARS, f"--{listener}", "off") as running:
        assert running.line[listener] is None
        if listener == "http":
            assert asyncio.run(once(running, "jam", 7)) == 7
        else:
            assert running.get("/jars/jars/jam").status_code == 204
            assert not (tmp_path / "data" / "nats").exists()
            assert [line["systems"] for line in running.log if "nats is off" in line["event"]] == [
                ["jars"]
            ]


def test_an_external_nats_server_is_used_and_none_is_started(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as first,
        serving(tmp_path, JARS, "--nats", first.nats, data="other") as second,
    ):
        assert second.nats == first.nats
        assert not (tmp_path / "other" / "nats").exists()


def test_no_nats_server_is_started_without_endpoints(tmp_path: Path) -> None:
    with serving(tmp_path, "tests.serve.support.jars:without_nats") as running:
        assert running.line["nats"] is None
        assert not (tmp_path / "data" / "nats").exists()


# Settings


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "keyhouse.toml").write_text(
        'data = "of-file"\nlog_level = "error"\n[jars]\nshelf = "of file"\n'
    )
    with serving(
        tmp_path,
        data="of-flag",
        KEYHOUSE_DATA="of-environment",
        KEYHOUSE_JARS_SHELF="of environment",
    ) as running:
        asyncio.run(once(running, "jam", 7))
        assert running.end() == 0
        assert running.log == []
    assert not (tmp_path / "of-file").exists() and not (tmp_path / "of-environment").exists()

    async def spaces() -> list[str]:
        engine = await open_engine(f"sqlite:{tmp_path}/of-flag/jars.db?layout=jars")
        found = [space async for space in engine.spaces()]
        await engine.close()
        return found

    assert asyncio.run(spaces()) == ["of environment"]


def test_no_secret_is_logged(tmp_path: Path) -> None:
    arguments = command(
        JARS,
        "--http",
        "127.0.0.1:0",
        "--engine",
        "postgresql://ann:hush@127.0.0.1:1/x",
        "--nats",
        "nats://b:hush@c",
    )
    ran = subprocess.run(
        arguments, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 1
    assert "hush" not in ran.stdout + ran.stderr
    assert "postgresql://127.0.0.1:1/x" in ran.stderr and "nats://c" in ran.stderr


# The data folder


def test_a_second_process_on_the_same_folder_is_rejected_with_the_first(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        said = refused(tmp_path, JARS, "--data", "data")
        assert said["fields"] == {"data": "data", "process": running.process.pid}
        assert "choose another folder" in said["error"]
        assert asyncio.run(once(running, "jam", 7)) == 7


def test_stored_rows_are_there_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        asyncio.run(once(running, "jam", 7))
        assert running.end() == 0
    with serving(tmp_path) as running:
        assert asyncio.run(once(running, "jam", None)) == 7


def test_after_a_kill_no_process_is_left_and_stored_rows_are_there(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        asyncio.run(once(running, "jam", 7))
        running.process.kill()
    with serving(tmp_path) as again:
        assert asyncio.run(once(again, "jam", None)) == 7
        assert not _listens(running.nats)


def _listens(url: str) -> bool:
    host, _, port = url.rpartition("/")[2].partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.skipif("postgres" not in OPENERS, reason="PostgreSQL is not among the chosen engines")
def test_all_systems_share_a_database_server_in_separate_tables(tmp_path: Path) -> None:
    """A second process without the first one's files finds the rows."""
    url = postgres_server().url
    with serving(tmp_path, JARS, "--engine", url) as running:
        assert asyncio.run(once(running, "jam", 7)) == 7
        assert running.end() == 0
    with serving(tmp_path, JARS, "--engine", url, data="other") as running:
        assert asyncio.run(once(running, "jam", None)) == 7
        [opened] = [line for line in running.log if line["event"] == "engine open"][-1:]
        assert opened["engine"].endswith("&layout=jars")


# The end


def test_a_signal_under_load_loses_no_acknowledged_write(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}

    async def write(running: Serving) -> None:
        client = await nats.connect(running.nats, allow_reconnect=False, connect_timeout=30)

        async def writer(number: int) -> None:
            for count in range(1_000_000):
                try:
                    assert await put(client, f"jar-{number}", count) == count
                except (NoRespondersError, ConnectionClosedError):
                    return  # the service no longer listens, or its NATS server has ended
                acknowledged[f"jar-{number}"] = count

        writers = [asyncio.create_task(writer(number)) for number in range(16)]
        await until(lambda: sum(acknowledged.values()) >= 500)
        running.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.process.wait, 30) == 0
        await asyncio.gather(*writers)
        await client.close()

    with serving(tmp_path) as running:
        asyncio.run(write(running))
    with serving(tmp_path) as running:
        found = {name: running.get(f"/jars/jars/{name}").json() for name in acknowledged}
    assert len(acknowledged) == 16
    assert all(found[name] in (count, count + 1) for name, count in acknowledged.items())


def test_a_request_in_flight_is_answered_before_the_process_ends(tmp_path: Path) -> None:
    async def main(running: Serving) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            asked = asyncio.create_task(client.get(f"{running.http}/jars/slow/jam"))
            await asyncio.to_thread(_drain_while_slow, tmp_path / "data", running)
            (tmp_path / "data" / "slow-released").touch()
            assert (await asked).json() == {"name": "jam"}
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{running.http}/health")

    with serving(tmp_path) as running:
        asyncio.run(main(running))
        assert running.process.wait(30) == 0


def test_a_request_beyond_the_drain_timeout_is_aborted(tmp_path: Path) -> None:
    with (
        serving(tmp_path, KEYHOUSE_DRAIN_SECONDS="0.1") as running,
        httpx.stream(
            "GET", f"{running.http}/jars/forever/jam", trust_env=False, timeout=None
        ) as answer,
    ):
        assert next(answer.iter_bytes()) == b"started"
        assert running.end() == 0


def test_a_second_signal_exits_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        asking = subprocess.Popen(
            ["curl", "-s", f"{running.http}/jars/slow/jam"], stdout=subprocess.DEVNULL
        )
        _drain_while_slow(tmp_path / "data", running)
        assert running.end(signal.SIGINT) == 128 + signal.SIGINT
        asking.wait()


def _drain_while_slow(data: Path, running: Serving) -> None:
    """Send SIGTERM when a slow request has started; return when connections are refused."""
    wait_until((data / "slow-started").exists)
    running.process.send_signal(signal.SIGTERM)
    wait_until(lambda: not _listens(running.http))


# Errors


def test_a_startup_error_is_one_sentence_with_advice(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases = [
            (["--http", f"127.0.0.1:{port}"], "HTTP cannot listen there"),
            (["--http", "no.such.host.invalid:0"], "HTTP cannot listen there"),
            (["--http", "127.0.0.1:0", "--nats-port", str(port)], "The port for NATS is in use"),
            (["--http", "127.0.0.1:0", "--nats", "nats://127.0.0.1:1"], "No NATS server answers"),
            (
                ["--http", "127.0.0.1:0", "--engine", "postgresql://127.0.0.1:1/x"],
                "The server cannot be reached",
            ),
            (
                ["--http", "127.0.0.1:0", "--engine", "mysql://x"],
                "Unknown scheme in the engine URL",
            ),
            (["--http", "8080"], "give HOST:PORT"),
            (["--config", "gone.toml"], "The settings file does not exist"),
            (["--data", "taken/by/a/file"], "The data folder is not writable"),
        ]
        (tmp_path / "taken").touch()
        for arguments, sentence in cases:
            said = refused(tmp_path, JARS, *arguments)
            assert sentence in said["error"], said
    (tmp_path / "keyhouse.toml").write_text("a = 1\nb = [\n")
    assert (
        "line 2" in refused(tmp_path, JARS)["fields"]["at"]
        or "end of" in refused(tmp_path, JARS)["fields"]["at"]
    )


def test_a_rejected_setting_names_its_table(tmp_path: Path) -> None:
    """Of five systems with the same settings, the sentence did not tell whose was wrong."""
    (tmp_path / "short.toml").write_text('[streamkit]\njwt_secret = "short"\n')
    said = refused(tmp_path, "history", "streamkit", "--config", "short.toml")
    assert "too short" in said["error"] and said["fields"]["table"] == "streamkit"
    (tmp_path / "ring.toml").write_text('[audiobooks]\nkey_ring = "none.json"\n')
    options = ("--http", "127.0.0.1:0", "--nats", "off")
    said = refused(tmp_path, "audiobooks", "history", *options, "--config", "ring.toml")
    assert "key ring" in said["error"] and said["fields"]["system"] == "audiobooks"


def test_a_setting_of_the_studio_is_rejected_before_anything_is_opened(tmp_path: Path) -> None:
    """Its table was read last, after every engine had been opened."""
    (tmp_path / "studio.toml").write_text("[studio]\nenabledd = true\n")
    said = refused(tmp_path, "history", "--config", "studio.toml")
    assert said["fields"] == {
        "setting": "studio.enabledd",
        "nearest": "studio.enabled",
        "source": "studio.toml",
    }
    assert {each.name for each in tmp_path.iterdir()} == {"studio.toml"}


def test_an_unknown_system_is_rejected(tmp_path: Path) -> None:
    assert refused(tmp_path, "rosie")["error"].startswith("No such system is installed;")


# The README


def readme_program() -> tuple[str, list[str]]:
    """Return the program that the README runs beside `make serve`, and the command after it."""
    page = (DOCS.parent / "README.md").read_text()
    [block] = [block for block in blocks(page, "sh") if "PluginStorage" in block]
    program, _, command = block.partition("-c '")[2].rpartition("'\n")
    return program, command.removeprefix(".venv-serve/bin/keyhouse ").split()


def test_the_readme_stores_a_value_in_what_make_serve_runs(tmp_path: Path) -> None:
    """Runs the README's commands for the second terminal as they are printed, on free ports."""
    assert "@exec $(SERVE)/keyhouse serve $(ARGS)" in (DOCS.parent / "Makefile").read_text()
    program, command = readme_program()
    with serving(tmp_path, "rosey", "streamkit", data="keyhouse-data") as running:
        ran = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert ran.stdout == "dark\n"
        assert "dark" in run(*command, cwd=tmp_path).stdout
        assert running.get("/docs").status_code == 200


def test_without_a_service_the_readme_program_fails_at_once(tmp_path: Path) -> None:
    """nats-py retried for two minutes, and printed 1,700 lines of tracebacks."""
    program, _ = readme_program()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # it does not listen
        port = bound.getsockname()[1]
        ran = subprocess.run(
            [sys.executable, "-c", program.replace('"trivia"', f'"trivia", "127.0.0.1:{port}"')],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ran.returncode == 1
    assert ran.stderr.count("Traceback") == 1
    assert "No NATS server accepts this connection: start keyhouse serve" in ran.stderr
