"""Bombs and lies are refused before a library opens them."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest

from pipeline.documents.limits import check_archive, check_markup
from pipeline.domain.document import Limits
from pipeline.domain.errors import RejectedInput

LIMITS = Limits(max_bytes=50_000_000)


def zipped(entries: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def refusal(tmp_path: Path, content: bytes) -> RejectedInput:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(RejectedInput) as refused:
        check_archive(path, LIMITS)
    return refused.value


def test_an_ordinary_archive_passes_and_so_does_one_inside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    inner = zipped({"xl/sheet.xml": b"<a/>" * 1000})
    path.write_bytes(zipped({"word/document.xml": b"<w/>" * 10_000, "word/embeddings/s.xlsx": inner}))
    check_archive(path, LIMITS)


def test_what_declares_too_much_is_refused_at_once(tmp_path: Path) -> None:
    bomb = zipped({"word/document.xml": b"\0" * 60_000_000})
    assert refusal(tmp_path, bomb).kind == "unsafe"


def lying(content: bytes, declared: int) -> bytes:
    """An archive whose one entry declares another size than it has, in both headers."""
    packed = bytearray(zipped({"word/document.xml": content}))
    struct.pack_into("<I", packed, 22, declared)
    central = packed.index(b"PK\x01\x02")
    struct.pack_into("<I", packed, central + 24, declared)
    return bytes(packed)


def test_a_lie_about_a_size_is_found_out(tmp_path: Path) -> None:
    assert refusal(tmp_path, lying(b"\0" * 40_000_000, declared=100)).kind in ("corrupt", "unsafe")


def test_entries_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    packed = zipped({"a": bytes(range(256)) * 40})
    at = packed.index(b"PK\x01\x02")
    end = packed.index(b"PK\x05\x06")
    central = packed[at:end]
    tail = bytearray(packed[end:])
    struct.pack_into("<HHI", tail, 8, 9, 9, len(central) * 9)
    assert refusal(tmp_path, packed[:at] + central * 9 + bytes(tail)).detail == "the archive's entries overlap"


def test_archives_in_archives_in_archives_are_refused(tmp_path: Path) -> None:
    content = b"core"
    for _ in range(5):
        content = zipped({"next.zip": content})
    assert refusal(tmp_path, content).detail == "archives are nested too deeply"


def test_a_bomb_inside_an_archive_counts(tmp_path: Path) -> None:
    inner = zipped({"x": b"\0" * 45_000_000})
    assert refusal(tmp_path, zipped({"a.zip": inner})).kind == "unsafe"


def test_damage_and_encryption_are_told_apart(tmp_path: Path) -> None:
    whole = zipped({"a": bytes(range(256)) * 40})
    assert refusal(tmp_path, whole[:100]).kind == "corrupt"
    locked = bytearray(whole)
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    assert refusal(tmp_path, bytes(locked)).kind == "password_required"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_xml_that_declares_entities_is_refused(tmp_path: Path, encoding: str) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'.encode(encoding)
    with pytest.raises(RejectedInput, match="declares entities"):
        check_markup(bomb)
    assert "declares entities" in refusal(tmp_path, zipped({"word/document.xml": b" " * 262_140 + bomb})).detail


def test_a_doctype_alone_is_fine() -> None:
    check_markup(b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://www.w3.org/x.dtd"><html/>')
