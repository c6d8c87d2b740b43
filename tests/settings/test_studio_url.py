"""The engine of the Studio's own rows: the one of the systems, if other hosts reach it too."""

import pytest

from keyhouse.settings.sources import load_settings


@pytest.mark.parametrize(
    ("engine", "own", "url"),
    [
        (None, None, "sqlite:d/studio.db"),
        ("sqlite:rows.db", None, "sqlite:d/studio.db"),
        ("rocksdb:rows", None, "sqlite:d/studio.db"),
        ("nats:", None, "sqlite:d/studio.db"),
        ("postgresql://h/db", None, "postgresql://h/db?layout=studio"),
        ("postgresql://h/db?layout=jars", None, "sqlite:d/studio.db"),
        ("nats://h:4222", None, "nats://h:4222?bucket=studio"),
        ("dynamodb://eu-west-1/shop", None, "dynamodb://eu-west-1/shop-studio?layout=studio"),
        ("postgresql://h/{system}", None, "postgresql://h/studio"),
        ("postgresql://h/db", "sqlite:own.db", "sqlite:own.db"),
    ],
)
def test_the_studio_is_on_the_engine_of_the_systems_if_that_is_a_server(
    engine: str | None, own: str | None, url: str
) -> None:
    given = {"data": "d"} | ({} if engine is None else {"engine": engine})
    environment = {} if own is None else {"KEYHOUSE_STUDIO_ENGINE": own}
    assert load_settings(given, environment, None, systems=("jars",)).studio_url() == url
