"""Every request that names an account has the one rule of account names."""

from keyhouse_audiobooks.accounts import messages
from tests.support.account_names import check_names


def test_every_request_that_names_an_account_has_the_rule() -> None:
    """`an\\u200bn` was another account than `ann`, and looked the same. Forms of pages become
    these types."""
    values = {"password": "correct horse", "roles": ["viewer"]}
    checked = check_names(
        messages, lookups=frozenset({"LoginBody", "ShownUser", "UserProfile"}), values=values
    )
    assert checked == {"NewUser", "SetupBody", "UserBody"}
