"""The description of a schema: where the fields of its keys come from."""

from msgspec import Struct, field

from keyhouse import Index, Record, Schema, Space
from keyhouse.schema.description import describe


class Clip(Struct):
    id: str
    heading: str = field(name="title", default="")
    tags: list[str] = []


def first_tag(clip: Clip) -> str:
    """The first tag."""
    return clip.tags[0]


CLIP = Record(
    Clip,
    "clip:{id}",
    Index("a:{word}:{id}", fields={"word": "heading"}),
    Index("b:{tag}:{id}", each={"tag": "tags"}),
    Index("c:{first}:{id}", fields={"first": first_tag}),
)


def test_the_source_of_a_field_is_the_member_or_the_purpose_of_its_function() -> None:
    [record] = describe(Schema("clips", CLIP, space=Space("a show"))).records
    assert [row.fields[0].source for row in record.derived] == [
        "from `title`",
        "each of several, from `tags`",
        "computed: the first tag",
    ]


def test_the_value_of_an_index_may_be_a_field_of_the_key_that_the_type_lacks() -> None:
    class Setting(Struct):
        text: str

    record = Record(Setting, "setting:{name}", Index("by:{text}:{name}", value="name"))
    assert [
        each.name for each in describe(Schema("settings", record, space=Space("a user"))).records
    ] == ["setting"]
