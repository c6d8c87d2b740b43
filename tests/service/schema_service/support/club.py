"""A schema with sealed members."""

from msgspec import Struct

from keyhouse import Record, Schema, Space, Unique


class Member(Struct, kw_only=True):
    id: str
    name: str
    email: str


BY_EMAIL = Unique("by-email:{email:hmac}", value="id")
MEMBER = Record(Member, "member:{id}", BY_EMAIL, sealed=("email",))
CLUB = Schema("club", MEMBER, space=Space("a club"))
