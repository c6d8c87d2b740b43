"""A SQLite VFS that counts and fails operations of a real file."""

import apsw


class Disk(apsw.VFS):
    """`failing`: the operation that fails from now on: `sync`, `write` or `full`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.name = name
        self.bytes_read = 0
        self.failing: str | None = None

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def connect(
        self, path: str, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    ) -> apsw.Connection:
        """Replace `apsw.Connection`."""
        return apsw.Connection(path, flags=flags, vfs=self.name)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.bytes_read += amount
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._disk.failing == "write":
            raise apsw.IOError("the disk does not write")
        if self._disk.failing == "full":
            raise apsw.FullError("the disk is full")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self._disk.failing == "sync":
            raise apsw.IOError("the disk does not sync")
        super().xSync(flags)
