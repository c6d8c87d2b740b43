"""The results as an SVG bar chart, written by hand: a plotting library is larger than Keyhouse."""

from collections.abc import Sequence
from html import escape
from typing import Final

from keyhouse.bench.result import Result

_LINE: Final = 44
_LEFT: Final = 330
_WIDTH: Final = 420
_HEAD: Final = 64
_TEXT: Final = 'font-family="ui-sans-serif, system-ui, sans-serif" fill="#222"'


def svg(title: str, note: str, results: Sequence[Result]) -> str:
    """Draw each ratio as a bar with a line at its goal; a full bar equals the baseline."""
    drawn = [result for result in results if result.ratio is not None]
    height = _HEAD + _LINE * len(drawn) + 30
    width = _LEFT + _WIDTH + 150
    bars = "".join(_bar(result, _HEAD + _LINE * number) for number, result in enumerate(drawn))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f'<text x="16" y="28" font-size="18" font-weight="bold" {_TEXT}>{escape(title)}</text>\n'
        f'<text x="16" y="48" font-size="12" {_TEXT}>{escape(note)}</text>\n'
        f"{bars}"
        f'<text x="{_LEFT}" y="{height - 12}" font-size="11" {_TEXT}>'
        "Keyhouse / baseline; the line marks the goal</text>\n</svg>\n"
    )


def _bar(result: Result, y: int) -> str:
    ratio = result.ratio or 0.0
    ours, baseline = result.median("ours") or 0.0, result.median("baseline") or 0.0
    colour = "#4477aa" if result.meets_goals else "#cc6677"
    goal = ""
    if result.goal is not None:
        x = _LEFT + result.goal * _WIDTH
        goal = (
            f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{y}" y2="{y + 26}" '
            'stroke="#222" stroke-width="2"/>\n'
        )
    label = escape(f"{result.case}  {result.work}")
    speeds = escape(f"{ours:,.0f} of {baseline:,.0f} {result.unit}, {result.baseline}")
    bar = f'<rect x="{_LEFT}" y="{y + 3}" height="20"'
    return (
        f'<text x="16" y="{y + 12}" font-size="13" {_TEXT}>{label}</text>\n'
        f'<text x="16" y="{y + 27}" font-size="11" {_TEXT}>{speeds}</text>\n'
        f'{bar} width="{_WIDTH}" fill="#eee"/>\n'
        f'{bar} width="{min(ratio, 1.0) * _WIDTH:.0f}" fill="{colour}"/>\n'
        f"{goal}"
        f'<text x="{_LEFT + _WIDTH + 12}" y="{y + 18}" font-size="14" {_TEXT}>{ratio:.2f}</text>\n'
    )
