"""The proof that the templates of one schema live together, or a DeclarationError with a key that shows where they don't."""

from collections.abc import Sequence

from keyhouse.errors import DeclarationError
from keyhouse.keys import proof
from keyhouse.keys.template import Template
from keyhouse.schema.record import Declared


def prove(
    all_declared: Sequence[Declared],
    bound: frozenset[str],
    overlaps: Sequence[tuple[Declared, Declared]],
) -> None:
    """Each template has one reading and scans its own keys; no two build one key; no scan returns another's rows, but for
    `overlaps`. `bound`: the key fields that a store fixes."""
    for declared in all_declared:
        _prove_alone(declared.template)
    known = {(id(scanned), id(within)) for scanned, within in overlaps}
    for index, one in enumerate(all_declared):
        for other in all_declared[index + 1 :]:
            _prove_apart(one.template, other.template, bound)
            for scanned, within in ((one, other), (other, one)):
                _prove_scan(
                    scanned.template,
                    within.template,
                    bound,
                    known=(id(scanned), id(within)) in known,
                )


def _prove_alone(template: Template) -> None:
    if (key := proof.ambiguity(template)) is not None:
        raise DeclarationError(
            "A key of this template has two readings.", template=template.text, witness=key
        )
    if (key := proof.spill(template)) is not None:
        raise DeclarationError(
            "A scan by one value of a field would return keys of another.",
            template=template.text,
            witness=key,
        )


def _prove_apart(one: Template, other: Template, bound: frozenset[str]) -> None:
    if (key := proof.collision(one, other, bound)) is not None:
        raise DeclarationError(
            "Two templates build the same key.", one=one.text, other=other.text, witness=key
        )


def _prove_scan(scanned: Template, within: Template, bound: frozenset[str], *, known: bool) -> None:
    key = proof.intrusion(scanned, within, bound)
    if key is not None and not known:
        raise DeclarationError(
            "A scan of one template would return rows of another; declare the overlap if it is meant.",
            scanned=scanned.text,
            within=within.text,
            witness=key,
        )
    if key is None and known:
        raise DeclarationError(
            "An overlap is declared that does not exist.", scanned=scanned.text, within=within.text
        )
