"""The IAM policy of a program that serves viewing history from DynamoDB."""

from typing import Any

__all__ = ["iam_policy"]

_ROWS = (
    "GetItem",
    "BatchGetItem",
    "Query",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "BatchWriteItem",
    "ConditionCheckItem",
)
_CHECKS = ("DescribeTable", "DescribeTimeToLive", "DescribeContinuousBackups")
_CREATES = ("CreateTable", "UpdateTimeToLive")


def iam_policy(
    table: str, *, region: str = "*", account: str = "*", create: bool = False
) -> dict[str, Any]:
    """Return the policy for a table and its log. `create`: also to create them."""
    arn = f"arn:aws:dynamodb:{region}:{account}:table/{table}"
    tables = [arn, f"{arn}.log"]
    statements = [
        _allow("Rows", _ROWS, [*tables, f"{arn}/index/*", f"{arn}.log/index/*"]),
        _allow("Checks", _CHECKS, tables),
    ]
    if create:
        statements.append(_allow("Creation", _CREATES, tables))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(name: str, actions: tuple[str, ...], resources: list[str]) -> dict[str, Any]:
    return {
        "Sid": name,
        "Effect": "Allow",
        "Action": [f"dynamodb:{action}" for action in actions],
        "Resource": resources,
    }
