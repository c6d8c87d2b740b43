"""The schema as a diagram: records on the left, the rows derived from them on the right, as SVG."""

from typing import Final

import msgspec

from keyhouse.schema.description import SchemaText

CHARACTER: Final = 7.3
ROW_HEIGHT: Final = 34
GAP: Final = 60
MARGIN: Final = 8


class Box(msgspec.Struct):
    x: float
    y: float
    width: float
    height: float
    label: str
    kind: str
    is_derived: bool


class Diagram(msgspec.Struct):
    """Boxes and lines, laid out. `lines` are SVG paths."""

    width: float
    height: float
    title: str
    boxes: list[Box]
    lines: list[str]


def diagram(schema: SchemaText) -> Diagram:
    """Lay out the records of a schema, each with its derived rows beside it."""
    left = max([_width(each.name, each.key) for each in schema.records], default=100)
    right = max(
        [_width(row.kind, row.key) for each in schema.records for row in each.derived], default=0
    )
    boxes: list[Box] = []
    lines: list[str] = []
    y: float = MARGIN
    for record in schema.records:
        rows = max(1, len(record.derived))
        height = ROW_HEIGHT
        middle = y + rows * (ROW_HEIGHT + MARGIN) / 2 - MARGIN / 2
        boxes.append(Box(MARGIN, middle - height / 2, left, height, record.key, record.name, False))
        for number, row in enumerate(record.derived):
            top = y + number * (ROW_HEIGHT + MARGIN)
            x = MARGIN + left + GAP
            boxes.append(Box(x, top, right, ROW_HEIGHT, row.key, row.kind, True))
            start, end, at = MARGIN + left, x, top + ROW_HEIGHT / 2
            bend = (start + end) / 2
            lines.append(
                f"M{start:.0f} {middle:.0f}"
                f"C{bend:.0f} {middle:.0f} {bend:.0f} {at:.0f} {end:.0f} {at:.0f}"
            )
        y += rows * (ROW_HEIGHT + MARGIN) + MARGIN
    width = 2 * MARGIN + left + (GAP + right if right else 0)
    return Diagram(width, y, schema.name, boxes, lines)


def _width(name: str, key: str) -> float:
    return max(len(name), len(key)) * CHARACTER + 2 * MARGIN
