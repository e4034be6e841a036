"""Ways to damage a file: blindly, and knowing what it is made of, so that the damage gets past the first checksum."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from random import Random

__all__ = ["mutated"]

_LENGTHS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_NUMBERS = (b"0", b"-1", b"1", b"65536", b"2147483648", b"99999999999", b"1e309", b"0.00000001", b"-0", b"NaN")
_NUMBER = re.compile(rb"\d{1,10}")
_TAG = re.compile(rb"<([A-Za-z][\w:.-]*)([^<>]*)>")
_MEMBER_NAMES = ("../../escaped.xml", "/etc/passwd", "word\\document.xml", "a" * 5000, "\ud7ff\U0010ffff", "x\ny", " ")
_ENTITIES = (
    b'<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>',
    b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    b'<!DOCTYPE r SYSTEM "http://127.0.0.1:9/r.dtd">',
    b'<!DOCTYPE r [<!ENTITY % p SYSTEM "file:///dev/zero"> %p;]>',
    b"<!DOCTYPE r [<!ATTLIST r a CDATA 'x'>]>",
)
_REFERENCES = (b"&#0;", b"&#xD800;", b"&#xFFFF;", b"&#x110000;", b"&a;", b"&lt", b"&amp;amp;", b"]]>", b"<![CDATA[")
_TEXTS = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    "\u202e\u0085\u2028".encode(),
    b"|" * 500,
    b"\t" * 500,
    b"`" * 300,
    b"[" * 3000,
    b"![x](data:image/png;base64,AAAA)",
    b"\r" * 100,
    b'"' * 301,
    b"x" * 50_000,
)
_MOST_BYTES = 4 << 20

Mutation = Callable[[bytes, Random, bytes], bytes]


def mutated(data: bytes, rng: Random, other: bytes) -> tuple[bytes, str]:
    """Damage a file in one to four ways.

    Args:
        data: The file.
        rng: Decides everything.
        other: Another file, of which pieces may be taken.

    Returns:
        The damaged file, and the names of what was done to it.
    """
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        mutation = rng.choice(_for(data))
        changed = mutation(data, rng, other)
        if len(changed) <= _MOST_BYTES:
            data = changed
            done.append(mutation.__name__.strip("_"))
    return data, " ".join(done)


def _for(data: bytes) -> tuple[Mutation, ...]:
    if data.startswith(b"PK\x03\x04"):
        # Mostly inside: a flipped bit of the packed bytes is only a wrong checksum.
        return (*_ANY, *_ZIP * 4)
    if data.lstrip()[:1] in (b"<", b"{", b"[") or b"%PDF-" in data[:1024] or b"\x00" not in data[:4096]:
        return (*_ANY, *_TEXTUAL * 2)
    return _ANY


# --- any bytes -------------------------------------------------------------------------------------------------------


def _place(data: bytes, rng: Random) -> int:
    """Anywhere, but often near the start, where headers are, or the end, where directories are."""
    if rng.random() < 0.3:
        return rng.randrange(min(len(data), 512) + 1)
    if rng.random() < 0.2:
        return max(0, len(data) - rng.randrange(513))
    return rng.randrange(len(data) + 1)


def _span(data: bytes, rng: Random) -> tuple[int, int]:
    start = _place(data, rng)
    return start, min(len(data), start + rng.choice((1, 4, 16, 64, 512, 4096, len(data))))


def _flip_bits(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 64))):
        if changed:
            changed[min(_place(data, rng), len(changed) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    return data[: _place(data, rng)]


def _remove(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def _repeat(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    start, end = _span(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 2, 50, 1000)) + data[end:]


def _move(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    start, end = _span(data, rng)
    rest = data[:start] + data[end:]
    at = _place(rest, rng)
    return rest[:at] + data[start:end] + rest[at:]


def _splice(data: bytes, rng: Random, other: bytes) -> bytes:
    start, end = _span(other, rng)
    at = _place(data, rng)
    return data[:at] + other[start:end] + data[at + rng.choice((0, end - start)) :]


def _set_length(data: bytes, rng: Random, other: bytes) -> bytes:
    """Write an awkward number over two, four or eight bytes."""
    del other
    form = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
    size = struct.calcsize(form)
    at = min(_place(data, rng), max(0, len(data) - size))
    number = rng.choice((*_LENGTHS, len(data), len(data) + 1)) & ((1 << 8 * size) - 1)
    return data[:at] + struct.pack(form, number) + data[at + size :]


def _insert(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    at = _place(data, rng)
    return data[:at] + rng.choice((*_TEXTS, rng.randbytes(rng.choice((1, 16, 300))))) + data[at:]


_ANY: tuple[Mutation, ...] = (_flip_bits, _truncate, _remove, _repeat, _move, _splice, _set_length, _insert)

# --- text and markup -------------------------------------------------------------------------------------------------


def _change_number(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    for match in sorted(
        rng.sample(found, min(len(found), rng.choice((1, 1, 3, 10)))), key=re.Match.start, reverse=True
    ):
        data = data[: match.start()] + rng.choice(_NUMBERS) + data[match.end() :]
    return data


def _swap_numbers(data: bytes, rng: Random, other: bytes) -> bytes:
    """References in PDFs and indexes in XML are numbers: two that change places point to where they should not."""
    del other
    found = list(_NUMBER.finditer(data))
    if len(found) < 2:
        return data
    one, two = sorted(rng.sample(found, 2), key=re.Match.start)
    return data[: one.start()] + two[0] + data[one.end() : two.start()] + one[0] + data[two.end() :]


def _declare_entities(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    at = data.find(b"?>") + 2 if b"?>" in data[:200] else 0
    changed = data[:at] + rng.choice(_ENTITIES) + data[at:]
    return _refer(changed, rng, b"") if rng.random() < 0.5 else changed


def _refer(data: bytes, rng: Random, other: bytes) -> bytes:
    """Put a reference that means nothing into the text."""
    del other
    places = [match.end() for match in _TAG.finditer(data)]
    at = rng.choice(places) if places else _place(data, rng)
    return data[:at] + rng.choice(_REFERENCES) + data[at:]


def _nest(data: bytes, rng: Random, other: bytes) -> bytes:
    """One element in itself, thousands of times."""
    del other
    found = list(_TAG.finditer(data))
    if not found:
        return b"<div>" * 20_000 + data
    tag = rng.choice(found)
    times = rng.choice((10, 1000, 20_000))
    close = b"</" + tag[1] + b">" if rng.random() < 0.5 else b""
    return data[: tag.start()] + tag[0] * times + close * times + data[tag.start() :]


def _say_twice(data: bytes, rng: Random, other: bytes) -> bytes:
    """The attributes of an element twice, or many elements like it."""
    del other
    found = list(_TAG.finditer(data))
    if not found:
        return data
    tag = rng.choice(found)
    if rng.random() < 0.5:
        return data[: tag.end(2)] + tag[2].rstrip(b"/") + data[tag.end(2) :]
    return data[: tag.end()] + tag[0] * rng.choice((1, 500, 5000)) + data[tag.end() :]


def _lie_about_encoding(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    name = rng.choice((b"utf-16", b"utf-7", b"cp037", b"no-such", b"hz", b"utf-32", b"idna", b"rot13", b"base64"))
    if b"utf-8" in data.lower()[:400]:
        return re.sub(rb"(?i)utf-8", name, data, count=1)
    return b'<?xml version="1.0" encoding="' + name + b'"?>' + data


_TEXTUAL: tuple[Mutation, ...] = (
    _change_number,
    _swap_numbers,
    _declare_entities,
    _refer,
    _nest,
    _say_twice,
    _lie_about_encoding,
)

# --- archives --------------------------------------------------------------------------------------------------------


def _members(data: bytes) -> list[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:
        return []


def _packed(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        # Two members of one name are among what is tried.
        warnings.simplefilter("ignore")
        for name, content in members:
            # Without a time of day: the same case is the same file.
            entry = zipfile.ZipInfo(name or "unnamed")
            entry.compress_type = method
            archive.writestr(entry, content)
    return out.getvalue()


def _change_member(data: bytes, rng: Random, other: bytes) -> bytes:
    """Damage what a member holds and pack it again with a right checksum, which gets the damage to the parser."""
    members = _members(data)
    if not members:
        return data
    at = rng.randrange(len(members))
    name, content = members[at]
    pool = (*_ANY, *_TEXTUAL * 3) if content.lstrip()[:1] == b"<" else _ANY
    members[at] = (name, rng.choice(pool)(content, rng, other)[:_MOST_BYTES])
    return _packed(members)


def _drop_member(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    members = _members(data)
    if members:
        del members[rng.randrange(len(members))]
    return _packed(members) if members else data


def _swap_members(data: bytes, rng: Random, other: bytes) -> bytes:
    """Each part under the other's name: a picture where XML is due."""
    del other
    members = _members(data)
    if len(members) < 2:
        return data
    one, two = rng.sample(range(len(members)), 2)
    members[one], members[two] = (members[one][0], members[two][1]), (members[two][0], members[one][1])
    return _packed(members)


def _rename_member(data: bytes, rng: Random, other: bytes) -> bytes:
    del other
    members = _members(data)
    if not members:
        return data
    at = rng.randrange(len(members))
    members[at] = (rng.choice((*_MEMBER_NAMES, members[0][0], members[0][0].upper())), members[at][1])
    return _packed(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)))


def _fill_member(data: bytes, rng: Random, other: bytes) -> bytes:
    """A member that inflates to far more than it packs to."""
    del other
    members = _members(data)
    if not members:
        return data
    at = rng.randrange(len(members))
    name, content = members[at]
    middle = len(content) // 2
    filler = rng.choice((b"\x00", b" ", b"<a/>")) * rng.choice((100_000, 5_000_000))
    members[at] = (name, content[:middle] + filler + content[middle:])
    return _packed(members)


def _nest_archive(data: bytes, rng: Random, other: bytes) -> bytes:
    members = _members(data)
    members.insert(rng.randrange(len(members) + 1), ("inner.zip", rng.choice((data, other))))
    return _packed(members)


def _lie_in_headers(data: bytes, rng: Random, other: bytes) -> bytes:
    """A number of a local header, of the directory, or of its end."""
    del other
    magic = rng.choice((b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"))
    places = [match.start() for match in re.finditer(re.escape(magic), data)]
    if not places:
        return data
    at = rng.choice(places) + rng.choice((6, 8, 14, 18, 20, 22, 24, 26, 28, 30, 42))
    return data[:at] + struct.pack("<I", rng.choice(_LENGTHS)) + data[at + 4 :]


_ZIP: tuple[Mutation, ...] = (
    _change_member,
    _change_member,
    _change_member,
    _drop_member,
    _swap_members,
    _rename_member,
    _fill_member,
    _nest_archive,
    _lie_in_headers,
)
