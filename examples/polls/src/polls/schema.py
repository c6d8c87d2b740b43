"""The keyspace. A space is a channel."""

from typing import Annotated

from msgspec import Meta, Struct

from keyhouse import Owner, Record, RecordCount, Schema, Space

Text = Annotated[str, Meta(min_length=1, max_length=200)]


class Poll(Struct, kw_only=True):
    """A question. Its id is generated."""

    id: str = ""
    question: Text
    options: Annotated[list[Text], Meta(min_length=2, max_length=10)]


class Vote(Struct, kw_only=True):
    """The vote of a viewer: the number of an option, from 0."""

    poll: str
    viewer: str
    option: int


POLL = Record(Poll, "poll:{poll:ulid}", fields={"poll": "id"})
VOTES = RecordCount("votes:{poll:ulid}:{option:02d}")
VOTE = Record(Vote, "vote:{poll:ulid}:{viewer}", VOTES, belongs_to=Owner(POLL))
SCHEMAS = (Schema("polls", POLL, VOTE, space=Space("a channel"), doc="Polls of a channel."),)
