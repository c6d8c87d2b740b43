"""A request over NATS for each verb of a served schema, made from the table of verbs: a verb that
is added has one too."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

from msgspec import Meta

from keyhouse.operations.table import VERBS, WATCH
from keyhouse.operations.verb import Verb
from keyhouse.schema import Derived


class Sample(NamedTuple):
    """A declaration, and what requests say of it: key fields, members such as a value, the name and
    the fields of a derived row of each class. `query` are the fields beside a body or parameters,
    which hold the others."""

    name: str
    fields: dict[str, Any]
    members: dict[str, Any]
    rows: Mapping[type[Derived], tuple[str, dict[str, Any]]] = {}
    query: Mapping[str, Any] = {}


def verb_requests(
    samples: Mapping[str, Sample], *, operations: list[dict[str, Any]], watch: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return a request of each verb, as large as its parameters may be. `samples` has one of each
    kind; `operations` are those of a batch, `watch` the members of a watch."""
    requests: dict[str, dict[str, Any]] = {}
    for verb in VERBS:
        sample = samples[verb.kinds[0]] if verb.kinds else Sample("", {}, {})
        body = _body(verb, sample._replace(members={"operations": operations, **sample.members}))
        requests.setdefault(verb.name, body)
    requests[WATCH.name] |= watch
    return requests


def _body(verb: Verb, sample: Sample) -> dict[str, Any]:
    body: dict[str, Any] = {verb.kinds[0]: sample.name} if verb.kinds else {}
    body |= {name: sample.members[name] for name in verb.required if name in sample.members}
    body |= dict(_largest(verb))
    if verb.key == "row":
        body["by"], body["fields"] = sample.rows[verb.row]
    elif verb.key in ("address", "query"):
        body["fields"] = sample.fields if verb.key == "address" else sample.query
    assert body.keys() >= {*verb.required}, f"samples lack a member that {verb.name} needs"
    return body


def _largest(verb: Verb) -> Iterator[tuple[str, Any]]:
    for name, kind, _ in verb.query:
        for meta in get_args(kind):
            if isinstance(meta, Meta) and meta.le is not None:
                yield name, meta.le
