"""Routes answer by their types: values in, values out, and a problem document for everything else."""

import pytest

from keyhouse.serve.http import make_app
from tests.serve.http_asking import ask
from tests.serve.http_shop import shop


def test_a_value_is_put_and_read_with_its_tag() -> None:
    app = make_app([shop()])
    made = ask(app, "PUT", "/shop/things/drinks/tea", b'{"name":"tea","price":3}')
    assert made.status == 201
    assert made.header("location") == "/shop/drinks/tea"
    read = ask(app, "GET", "/shop/things/drinks/tea")
    assert (read.status, read.json(), read.header("etag")) == (200, {"name": "tea", "price": 3}, '"1"')
    assert read.header("content-type") == "application/json"
    assert read.header("content-length") == str(len(read.body))


def test_a_path_is_told_by_its_longest_text() -> None:
    answered = ask(make_app([shop()]), "POST", "/shop/things/drinks:batch", b'[{"name":"tea"},{"name":"beer"}]')
    assert (answered.status, answered.json()) == (200, {"count": 2})


@pytest.mark.parametrize(
    "path", ["/", "/shop", "/shop/", "/shop/things/drinks/", "/things/drinks", "/shop//echo", "/docz"]
)
def test_nothing_is_at_another_address(path: str) -> None:
    answered = ask(make_app([shop()]), "GET", path)
    assert (answered.status, answered.json()["code"]) == (404, "NOT_FOUND")
    assert answered.header("content-type") == "application/problem+json"
