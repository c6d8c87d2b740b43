"""The DynamoDB engine, through `aiobotocore`: a table of rows and a table for the log.

Open it with `await DynamoDBEngine.open(Settings(table="rows"))`.
"""

from keyhouse.engines.dynamodb.engine import DynamoDBEngine
from keyhouse.engines.dynamodb.layout import Layout, Path, layout_of
from keyhouse.engines.dynamodb.settings import Settings

__all__ = ["DynamoDBEngine", "Layout", "Path", "Settings", "layout_of"]
