"""The RocksDB engine: one folder, one process, one writer that commits in groups. Through
`rocksdict`.

`RocksdbEngine.open(path)` is all there is to call.
"""

from keyhouse.engines.rocksdb.engine import RocksdbEngine

__all__ = ["RocksdbEngine"]
