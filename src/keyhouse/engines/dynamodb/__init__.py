"""The DynamoDB engine: one table of rows and one of bookkeeping, written by conditional transactions. Through `aiobotocore`.

`await DynamoDBEngine.open(Settings(table="rows"))` is all there is to call.
"""

from keyhouse.engines.dynamodb.engine import DynamoDBEngine
from keyhouse.engines.dynamodb.layout import Layout, Path, layout_of
from keyhouse.engines.dynamodb.settings import Settings

__all__ = ["DynamoDBEngine", "Layout", "Path", "Settings", "layout_of"]
