"""The table of verbs: what is made of an entry has everything that the entry declares."""

import inspect
import re
from pathlib import Path

import pytest

import keyhouse.http
from keyhouse.operations.requests import SchemaRequest
from keyhouse.operations.table import VERBS, WATCH
from keyhouse.operations.verb import Verb
from keyhouse.schema.operation import OPERATIONS

SCRIPT = Path(keyhouse.http.__file__).parent / "assets" / "keyhouse.js"
WITHOUT_SCRIPT = {
    *("get_many", "keys", "record_count", "members", "sum_of_days"),
    *("create", "append", "clear"),
}
"""Verbs that pages and overlays do not need: the module stays under 8 KB."""


def entry(verb: Verb) -> str:
    return " ".join([verb.name, *verb.kinds])


def test_the_names_of_verbs_are_those_that_operations_of_ones_own_must_not_have() -> None:
    assert {verb.name for verb in VERBS} == set(OPERATIONS)


def test_a_name_has_one_verb_for_each_kind() -> None:
    pairs = [(verb.name, kind) for verb in VERBS for kind in verb.kinds or ("",)]
    assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb is not WATCH], ids=entry)
def test_a_function_takes_the_members_of_its_requests(verb: Verb) -> None:
    """Over HTTP and over NATS: a member that only one of them passes on cannot be declared."""
    assert verb.run is not None
    taken = set(inspect.signature(verb.run).parameters)
    given = {*verb.arguments, *verb.required}
    given |= {"check"} if verb.is_conditional and verb.access == "write" else set()
    given |= {"key"} if verb.is_idempotent else set()
    given |= {"shows_value"} if verb.shows_value else set()
    target = {"space", "served"} if verb.kinds else {"space", "catalog", "protocol"}
    of_key = {"filters": {"filters", "by"}, "row": {"by", "fields"}, "none": set[str]()}
    expected = target | of_key.get(verb.key, {"fields"}) | given
    assert taken - {"bytes_max"} == expected


@pytest.mark.parametrize("verb", VERBS, ids=entry)
def test_a_request_over_nats_has_the_members_of_every_verb(verb: Verb) -> None:
    assert {*verb.arguments, *verb.required} <= set(SchemaRequest.__struct_fields__)


def test_the_requests_of_keyhouse_js_are_those_of_the_table() -> None:
    text = SCRIPT.read_text()
    sent = set(re.findall(r'#json\("([A-Z]+)", (`[^`]*`|"[^"]*"|at\(\w+, address\))', text))
    sent |= {
        ("GET", path) for path in re.findall(r"#(?:found|events)\((`[^`]*`|at\([^)]*\))", text)
    }
    forms = {f"{method} {_form(path)}" for method, path in sent}
    known = {verb.http.replace("{kind}", "record"): verb.name for verb in VERBS if verb.http}
    own = {"POST /operations/{name}"}
    assert forms <= known.keys() | own
    assert {known[form] for form in forms - own} == set(OPERATIONS) - WITHOUT_SCRIPT


def _form(path: str) -> str:
    """Return the path of a request as the table writes it."""
    path = path.strip('`"').replace("${at(record, address)}", "at(record, address)")
    path = path.replace("at(record, address)", "/records/{name}/{address}")
    path = re.sub(r"\$\{path\(\w+, address\)\}", "{name}/{address}", path)
    path = re.sub(r"\$\{part\(\w+\)\}", "{name}", path)
    return re.sub(r"\$\{query\(.*\)\}", "", path)
