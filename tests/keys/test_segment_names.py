"""A type of key field by the name of another language comes with the one that was meant."""

from decimal import Decimal

import pytest

from keyhouse import Template
from keyhouse.errors import DeclarationError, KeyFieldError
from keyhouse.keys.segments import OF_PYTHON, segment


@pytest.mark.parametrize("spec", [*OF_PYTHON, "6", "06", "10"])
def test_a_type_of_python_comes_with_the_short_name(spec: str) -> None:
    """`{second:int}` and `{second:6}` listed `0Nd` among the known names, unexplained."""
    with pytest.raises(DeclarationError) as rejected:
        segment(spec)
    meant = str(rejected.value.fields["nearest"])
    segment(meant)
    if spec.isdecimal():
        assert meant == f"0{int(spec)}d"


@pytest.mark.parametrize("number", [190 / 60, Decimal("0.25")])
def test_a_number_of_too_many_decimals_says_how_to_round_it(number: float) -> None:
    """A migration from seconds to minutes stopped at "The field can have at most 1 decimals."."""
    template = Template("length:{minutes:05.1f}")
    with pytest.raises(KeyFieldError, match=r"write round\(number, 1\)") as rejected:
        template.build({"minutes": number})
    assert rejected.value.fields["field"] == "minutes"
    assert template.build({"minutes": round(number, 1)})
