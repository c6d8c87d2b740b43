"""Prove that the templates of a schema do not conflict; raise DeclarationError if they do."""

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
    """Prove that each key has one parse and one template, and that scans return only their own
    rows.

    `overlaps` are exempt from the last. `bound` are the key fields that a store fixes.
    """
    for declared in all_declared:
        _prove_alone(declared.template)
    known = set(overlaps)
    for index, one in enumerate(all_declared):
        for other in all_declared[index + 1 :]:
            _prove_apart(one.template, other.template, bound)
            for scanned, within in ((one, other), (other, one)):
                _prove_scan(
                    scanned.template,
                    within.template,
                    bound,
                    known=(scanned, within) in known,
                )


def _prove_alone(template: Template) -> None:
    if (key := proof.ambiguity(template)) is not None:
        raise DeclarationError(
            "A key of this template can be parsed in two ways.", template=template.text, witness=key
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
            "Two templates build the same key: begin one of them with another word.",
            one=one.text,
            other=other.text,
            witness=key,
        )


def _prove_scan(scanned: Template, within: Template, bound: frozenset[str], *, known: bool) -> None:
    key = proof.intrusion(scanned, within, bound)
    if key is not None and not known:
        raise DeclarationError(
            "A scan of one template would return rows of another; declare the overlap if intended.",
            scanned=scanned.text,
            within=within.text,
            witness=key,
        )
    if key is None and known:
        raise DeclarationError(
            "An overlap is declared that does not exist.", scanned=scanned.text, within=within.text
        )
