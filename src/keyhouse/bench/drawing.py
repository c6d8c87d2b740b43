"""The table as a picture: SVG, written by hand, since what draws pictures is larger than all of Keyhouse."""

from collections.abc import Sequence
from html import escape
from typing import Final

from keyhouse.bench.figure import Figure

_LINE: Final = 44
_LEFT: Final = 330
_WIDTH: Final = 420
_HEAD: Final = 64
_TEXT: Final = 'font-family="ui-sans-serif, system-ui, sans-serif" fill="#222"'


def svg(title: str, note: str, figures: Sequence[Figure]) -> str:
    """Each ratio as a bar, with a line where its goal is. A bar that is whole is as fast as the limit."""
    drawn = [figure for figure in figures if figure.ratio is not None]
    height = _HEAD + _LINE * len(drawn) + 30
    width = _LEFT + _WIDTH + 150
    bars = "".join(_bar(figure, _HEAD + _LINE * number) for number, figure in enumerate(drawn))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
        f'<text x="16" y="28" font-size="18" font-weight="bold" {_TEXT}>{escape(title)}</text>\n'
        f'<text x="16" y="48" font-size="12" {_TEXT}>{escape(note)}</text>\n'
        f"{bars}"
        f'<text x="{_LEFT}" y="{height - 12}" font-size="11" {_TEXT}>'
        "ours / limit; the line is the goal, a whole bar the limit itself</text>\n</svg>\n"
    )


def _bar(figure: Figure, y: int) -> str:
    ratio = figure.ratio or 0.0
    ours, limit = figure.median("ours") or 0.0, figure.median("limit") or 0.0
    colour = "#4477aa" if figure.reached else "#cc6677"
    goal = ""
    if figure.goal is not None:
        at = _LEFT + figure.goal * _WIDTH
        goal = f'<line x1="{at:.0f}" x2="{at:.0f}" y1="{y}" y2="{y + 26}" stroke="#222" stroke-width="2"/>\n'
    speeds = f"{ours:,.0f} of {limit:,.0f} {figure.unit}, {figure.against}"
    return (
        f'<text x="16" y="{y + 12}" font-size="13" {_TEXT}>{escape(f"{figure.row}  {figure.work}")}</text>\n'
        f'<text x="16" y="{y + 27}" font-size="11" {_TEXT}>{escape(speeds)}</text>\n'
        f'<rect x="{_LEFT}" y="{y + 3}" width="{_WIDTH}" height="20" fill="#eee"/>\n'
        f'<rect x="{_LEFT}" y="{y + 3}" width="{min(ratio, 1.0) * _WIDTH:.0f}" height="20" fill="{colour}"/>\n'
        f"{goal}"
        f'<text x="{_LEFT + _WIDTH + 12}" y="{y + 18}" font-size="14" {_TEXT}>{ratio:.2f}</text>\n'
    )
