"""Every request that names a user has the one rule of account names."""

from keyhouse_playlist import subjects
from keyhouse_playlist.accounts import messages
from keyhouse_playlist.web import login
from tests.support.account_names import check_names


def test_every_request_that_names_a_user_has_the_rule() -> None:
    """`an\\u200bn` was another user than `ann`, and looked the same."""
    lookups = frozenset({"SessionReply", "CodeQuery", "UsernameForm", "LoginState"})
    checked = check_names(messages, subjects, login, lookups=lookups, values={"otp": "x"})
    assert checked >= {"OtpRequestBody", "OtpVerifyBody", "CodeForm", "_Command", "_Named"}
