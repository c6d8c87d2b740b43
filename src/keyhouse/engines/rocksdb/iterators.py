"""Iteration over a column family, with workarounds for three bugs of the driver.

Its `items()` ends silently at a damaged block: `steps` checks the iterator's status at the end. It
sets an upper bound where a lower one is asked for: `steps` checks the lower end itself. A bound
only points to the caller's bytes: the caller must keep those, or the result of `bounded`, alive
while it iterates.
"""

from collections.abc import Iterator

from rocksdict import RdictIter, ReadOptions

from keyhouse.engines.rocksdb.error_map import translate


def bounded(stop: bytes | None) -> ReadOptions:
    """Return the options of an iterator that ends before `stop`."""
    reading = ReadOptions()
    if stop is not None:
        reading.set_iterate_upper_bound(stop)
    return reading


def steps(
    iterator: RdictIter, start: bytes, folder: str, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values from `start` on; reversed, from the end of the iterator down to
    `start`.
    """
    try:
        if reverse:
            iterator.seek_to_last()
            while iterator.valid():
                key = iterator.key()
                if key < start:
                    return
                yield key, iterator.value()
                iterator.prev()
        else:
            iterator.seek(start)
            while iterator.valid():
                yield iterator.key(), iterator.value()
                iterator.next()
        iterator.status()
    except Exception as error:
        raise translate(error, folder) from error
    finally:
        del iterator
