"""Walks over a column family, around three faults of the driver.

Its `items()` ends without a word at a damaged block: so a walk asks for the iterator's status when it has come to its end.
It sets an upper bound where a lower one is asked for: so that end is checked here. And a bound only points to the bytes of
whoever set it: so who bounds an iterator holds what `bounded` gave, or those bytes, for as long as it walks.
"""

from collections.abc import Iterator

from rocksdict import RdictIter, ReadOptions

from keyhouse.engines.rocksdb.error_map import translate


def bounded(stop: bytes | None) -> ReadOptions:
    """For an iterator that ends before `stop`."""
    reading = ReadOptions()
    if stop is not None:
        reading.set_iterate_upper_bound(stop)
    return reading


def steps(
    at: RdictIter, start: bytes, folder: str, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values from `start` on; or those up to there, from the iterator's end backward."""
    try:
        if reverse:
            at.seek_to_last()
            while at.valid():
                key = at.key()
                if key < start:
                    return
                yield key, at.value()
                at.prev()
        else:
            at.seek(start)
            while at.valid():
                yield at.key(), at.value()
                at.next()
        at.status()
    except Exception as error:
        raise translate(error, folder) from error
    finally:
        del at
