"""Compound files (OLE), as Outlook's messages are: their storages and streams, read without trust ([MS-CFB])."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.domain.errors import RejectedInput

__all__ = ["Compound", "Item"]

_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LAST_SECTOR = 0xFFFFFFFA  # values from here up are markers
_NO_ITEM = 0xFFFFFFFF
_STORAGE, _STREAM, _ROOT = 1, 2, 5
_ENTRY_BYTES = 128
_MAX_ITEMS = 200_000


@dataclass(slots=True)
class Item:
    """A storage with its items by name, or a stream."""

    name: str
    start: int
    size_bytes: int
    is_stream: bool
    items: dict[str, Item] = field(default_factory=dict)


class Compound:
    """A compound file in memory.

    Raises:
        RejectedInput: ``corrupt``, on opening and on reading: chains that run in circles or leave the file.
    """

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        if len(data) < 512 or data[:8] != _MAGIC:
            raise _corrupt("it is no compound file")
        sector_shift, mini_shift = struct.unpack_from("<HH", data, 30)
        if sector_shift not in (9, 12) or mini_shift != 6:
            raise _corrupt("its sectors have no known size")
        self._sector_bytes, self._mini_bytes = 1 << sector_shift, 1 << mini_shift
        first_directory, self._mini_below = struct.unpack_from("<I4xI", data, 48)
        first_mini_fat, _, first_more, _ = struct.unpack_from("<IIII", data, 60)
        self._fat = self._links(self._fat_sectors(first_more))
        self._mini_fat = self._links(self._chain(first_mini_fat, self._fat))
        entries = b"".join(bytes(self._sector(number)) for number in self._chain(first_directory, self._fat))
        self.root = self._tree(entries)
        self._mini = b"".join(bytes(self._sector(number)) for number in self._chain(self.root.start, self._fat))

    def read(self, item: Item) -> Iterator[bytes]:
        """Yield a stream's bytes in pieces; never more than the file holds."""
        left = item.size_bytes
        if left > len(self._data):
            raise _corrupt("a part of it is longer than the file")
        if left < self._mini_below:
            step, chain = self._mini_bytes, self._chain(item.start, self._mini_fat)
            pieces = (self._mini[number * step : (number + 1) * step] for number in chain)
        else:
            pieces = (bytes(self._sector(number)) for number in self._chain(item.start, self._fat))
        for piece in pieces:
            if left <= 0:
                return
            yield piece[:left]
            left -= len(piece)
        if left > 0:
            raise _corrupt("a part of it breaks off")

    def _fat_sectors(self, first_more: int) -> Iterator[int]:
        yield from (number for number in struct.unpack_from("<109I", self._data, 76) if number < _LAST_SECTOR)
        per_sector = self._sector_bytes // 4
        more, seen = first_more, 0
        while more < _LAST_SECTOR:
            seen += 1
            if seen * self._sector_bytes > len(self._data):
                raise _corrupt("its table of sectors runs in a circle")
            *numbers, more = struct.unpack(f"<{per_sector}I", self._sector(more))
            yield from (number for number in numbers if number < _LAST_SECTOR)

    def _links(self, sectors: Iterator[int]) -> list[int]:
        links: list[int] = []
        for number in sectors:
            links += struct.unpack(f"<{self._sector_bytes // 4}I", self._sector(number))
            if len(links) > len(self._data):
                raise _corrupt("its table of sectors is longer than the file")
        return links

    def _chain(self, start: int, links: list[int]) -> Iterator[int]:
        number, left = start, len(links)
        while number < _LAST_SECTOR:
            if number >= len(links) or left == 0:
                raise _corrupt("a chain of its sectors leads nowhere")
            yield number
            number, left = links[number], left - 1

    def _sector(self, number: int) -> memoryview:
        start = (number + 1) * self._sector_bytes
        sector = self._data[start : start + self._sector_bytes]
        # The last one may be cut short by what wrote the file.
        if not sector:
            raise _corrupt("a sector of it is missing")
        return (
            sector if len(sector) == self._sector_bytes else memoryview(bytes(sector).ljust(self._sector_bytes, b"\0"))
        )

    def _tree(self, entries: bytes) -> Item:
        count = len(entries) // _ENTRY_BYTES
        if not 0 < count <= _MAX_ITEMS:
            raise _corrupt("its directory is empty or has no end")
        root = _item(entries, 0)
        seen = {0}
        waiting = [(root, _links_of(entries, 0)[2])]
        while waiting:
            parent, number = waiting.pop()
            if number == _NO_ITEM:
                continue
            if number >= count or number in seen:
                raise _corrupt("its directory runs in a circle")
            seen.add(number)
            left, right, child = _links_of(entries, number)
            item = _item(entries, number)
            parent.items[item.name] = item
            waiting += [(parent, left), (parent, right), (item, child if not item.is_stream else _NO_ITEM)]
        return root


def _item(entries: bytes, number: int) -> Item:
    at = number * _ENTRY_BYTES
    length, kind = struct.unpack_from("<HB", entries, at + 64)
    start, size = struct.unpack_from("<IQ", entries, at + 116)
    if kind not in (_STORAGE, _STREAM, _ROOT):
        raise _corrupt("its directory names something of no known kind")
    name = entries[at : at + max(0, min(length, 64) - 2)].decode("utf-16-le", "replace")
    # The upper half is not cleared by every writer of 512-byte sectors.
    return Item(name, start, size & 0xFFFFFFFF, kind == _STREAM)


def _links_of(entries: bytes, number: int) -> tuple[int, int, int]:
    left, right, child = struct.unpack_from("<III", entries, number * _ENTRY_BYTES + 68)
    return left, right, child


def _corrupt(detail: str) -> RejectedInput:
    return RejectedInput("corrupt", detail)
