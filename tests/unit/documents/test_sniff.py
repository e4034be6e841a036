"""The type of a file is told from its bytes; its name decides between kinds of text only."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from examples.make import HERE, handbook_pdf, rota_docx
from pipeline.documents import media
from pipeline.documents.sniff import sniff
from pipeline.domain.errors import RejectedInput

NOTICE = (HERE / "slipway-notice.png").read_bytes()


def told(tmp_path: Path, name: str, content: bytes | str) -> str:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return sniff(path)


def zipped(**entries: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("__", "/"), content)
    return out.getvalue()


def ole(*streams: str) -> bytes:
    """A compound file of one FAT sector and one directory sector (the fourth entry stays empty)."""
    header = bytearray(512)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    struct.pack_into("<H", header, 30, 9)
    struct.pack_into("<I", header, 48, 1)
    struct.pack_into("<109I", header, 76, 0, *[0xFFFFFFFF] * 108)
    fat = struct.pack("<128I", 0xFFFFFFFD, 0xFFFFFFFE, *[0xFFFFFFFF] * 126)
    directory = b""
    for name in ("Root Entry", *streams):
        coded = name.encode("utf-16-le")
        directory += coded.ljust(64, b"\0") + struct.pack("<H", len(coded) + 2) + bytes(62)
    return bytes(header) + fat + directory.ljust(512, b"\0")


@pytest.mark.parametrize("name", ["report.pdf", "report.doc", "report", "report.txt"])
def test_a_name_does_not_change_what_the_bytes_say(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, name, handbook_pdf()) == media.PDF
    assert told(tmp_path, name, rota_docx()) == media.DOCX
    assert told(tmp_path, name, NOTICE) == "image/png"


def test_a_pdf_may_have_some_bytes_before_it(tmp_path: Path) -> None:
    assert told(tmp_path, "x", b"\0\1junk" * 20 + b"%PDF-1.7\n") == media.PDF


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a rest", "image/gif"),
        (b"II*\x00rest", "image/tiff"),
        (b"MM\x00*rest", "image/tiff"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"BM" + bytes(28), "image/bmp"),
        (b"{\\rtf1\\ansi hello}", media.RTF),
    ],
)
def test_magic_numbers(tmp_path: Path, head: bytes, media_type: str) -> None:
    assert told(tmp_path, "file", head) == media_type


def test_zip_based_formats_are_told_by_their_directory(tmp_path: Path) -> None:
    types = '<Override ContentType="application/vnd.openxmlformats-officedocument.{}.main+xml"/>'
    assert told(tmp_path, "a", zipped(**{"[Content_Types].xml": types.format("spreadsheetml.sheet")})) == media.XLSX
    assert told(tmp_path, "b", zipped(**{"[Content_Types].xml": "<x/>", "ppt__p.xml": "x"})) == media.PPTX
    assert told(tmp_path, "c", zipped(mimetype="application/epub+zip")) == media.EPUB
    assert told(tmp_path, "d", zipped(mimetype="application/vnd.oasis.opendocument.text")) == media.ODT


def test_a_damaged_archive_has_the_kind_of_what_is_left_of_it(tmp_path: Path) -> None:
    assert told(tmp_path, "cut", rota_docx()[:3000]) == media.DOCX
    assert told(tmp_path, "cut.xlsx", b"PK\x03\x04" + bytes(40)) == media.XLSX


@pytest.mark.parametrize(
    ("stream", "media_type"),
    [
        ("WordDocument", "application/msword"),
        ("Workbook", "application/vnd.ms-excel"),
        ("PowerPoint Document", "application/vnd.ms-powerpoint"),
        ("__properties_version1.0", "application/vnd.ms-outlook"),
        ("EncryptedPackage", media.ENCRYPTED_OFFICE),
    ],
)
def test_ole_formats_are_told_by_their_streams(tmp_path: Path, stream: str, media_type: str) -> None:
    assert told(tmp_path, "old", ole(stream)) == media_type


@pytest.mark.parametrize(
    ("name", "text", "media_type"),
    [
        ("notes", "Just words.\nAnd more.", media.PLAIN),
        ("notes.md", "# Head", media.MARKDOWN),
        ("table.csv", "a,b\n1,2", media.CSV),
        ("table.tsv", "a\tb", media.TSV),
        ("data.json", '{"a": 1}', media.JSON),
        ("data.jsonl", '{"a": 1}\n{"a": 2}', media.JSONL),
        ("page.txt", "<!DOCTYPE html><html><p>x", media.HTML),
        ("page", "<div><p>one</p><p>two</p></div>", media.HTML),
        ("feed", '<?xml version="1.0"?><feed/>', media.XML),
        ("page.php", '<?xml version="1.0"?><!DOCTYPE html><html>', media.HTML),
        ("mail", "From: a@b.c\nTo: d@e.f\nSubject: x\nDate: today\n\nHello", media.EML),
        ("letter", "From: the harbour master\n\nDear all", media.PLAIN),
        ("empty", "", media.PLAIN),
        ("white", " \n\t", media.PLAIN),
    ],
)
def test_kinds_of_text(tmp_path: Path, name: str, text: str, media_type: str) -> None:
    assert told(tmp_path, name, text) == media_type


def test_text_may_be_in_any_encoding(tmp_path: Path) -> None:
    assert told(tmp_path, "a.csv", "名前,年齢\n".encode("cp932")) == media.CSV
    assert told(tmp_path, "b.txt", "plain words".encode("utf-16")) == media.PLAIN
    assert told(tmp_path, "c", "<html><body>x".encode("utf-16-le")) == media.HTML


@pytest.mark.parametrize(
    "content",
    [
        "Отчёт о про\0верке шлюза".encode(),
        b"a,b\n1,x\0y\n2,z\n",
        b"N\x08NA\x08AM\x08ME\x08E _\x08o_\x08n the manual's page",
        b"plain words \x01 of a log\n" + b"and many more without one, as nearly all lines are\n" * 50,
        "Отчёт о проверке шлюза\n".encode("cp1251") * 50 + b"\0",
    ],
)
def test_a_few_controls_in_text_leave_it_text(tmp_path: Path, content: bytes) -> None:
    assert told(tmp_path, "a.txt", content) == media.PLAIN


@pytest.mark.parametrize("content", [b"\0", b"\0\0\0\0", bytes(5_000), b"\1\2\3ab", b"caf\xe9 \0\xff\xfe", b"\0\x90"])
def test_controls_among_little_else_are_binary_data(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(RejectedInput, match="binary data"):
        told(tmp_path, "a.txt", content)


def test_a_picture_of_an_unknown_kind_that_is_mostly_white_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(RejectedInput, match="unknown kind"):
        told(tmp_path, "scan.tga", b"\x20\x20\x03\x20" + b"\xff" * 500 + b"\x80\x40" * 20 + b"\xff" * 500)
    assert told(tmp_path, "a", "яяя ÿÿÿ".encode("cp1251", "ignore") + b" \xff\xff\xff") == media.PLAIN


def test_archives_are_told_also_when_they_are_compressed(tmp_path: Path) -> None:
    tar = b"\0" * 257 + b"ustar" + bytes(250)
    assert told(tmp_path, "a.zip", zipped(a="1")) == media.ZIP
    for packed in (tar, gzip.compress(tar), bz2.compress(tar), lzma.compress(tar)):
        assert told(tmp_path, "a", packed) == media.TAR


POSTMARK = "From a@b.example Mon Jan  1 10:30:00 2024\n"
LETTER = "From: a@b.example\nTo: c@d.example\nSubject: Tides\nDate: Mon, 1 Jan 2024 10:30:00 +0000\n\nHigh at nine.\n\n"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("in", (POSTMARK + LETTER) * 2, media.MBOX),
        ("in.eml", (POSTMARK + LETTER) * 2, media.MBOX),
        ("in", POSTMARK + LETTER * 2000 + POSTMARK + LETTER, media.MBOX),
        ("in", POSTMARK + LETTER, media.EML),
        ("in.eml", POSTMARK + LETTER * 2000, media.EML),
        ("in", "From Monday 10:30 on it rains:\nbring a coat.\n\nFrom Friday 10:30 on it is dry.\n", media.PLAIN),
    ],
)
def test_a_mailbox_is_told_from_a_mail(tmp_path: Path, name: str, content: str, kind: str) -> None:
    assert told(tmp_path, name, content) == kind


def test_a_tar_is_told_also_where_bzip2_gives_no_byte_of_it_before_a_whole_block(tmp_path: Path) -> None:
    assert told(tmp_path, "a", bz2.compress(tarfile.TarInfo("a").tobuf() + os.urandom(200_000))) == media.TAR


def test_a_tar_of_the_first_kind_is_told_by_its_checksum(tmp_path: Path) -> None:
    header = bytearray(tarfile.TarInfo("a.txt").tobuf(tarfile.USTAR_FORMAT))
    header[148:156], header[257:265] = b" " * 8, bytes(8)
    header[148:156] = b"%06o\0 " % sum(header)
    assert told(tmp_path, "a", bytes(header)) == media.TAR
    header[0] ^= 1
    with pytest.raises(RejectedInput):
        told(tmp_path, "a", bytes(header))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x1f\x8b\x08rest", "gzip"),
        (b"7z\xbc\xaf\x27\x1crest", "7z"),
        (b"PK\x07\x08PK\x03\x04rest", "split"),
        (b"\x78\x9f\x3e\x22rest", "winmail.dat"),
        (bytes.fromhex("308006092a864886f70d010703") + b"rest", "S/MIME"),
        (bytes.fromhex("3082123406092a864886f70d010702") + b"rest", "S/MIME"),
        (b"\x7fELFrest", "program"),
        (bytes(range(256)) * 4, "binary data of an unknown kind"),
        (b"\0\0\0\x18ftypisom", "MP4"),
        (ole("Strange"), "OLE file"),
    ],
)
def test_what_no_reader_takes_is_refused_by_name(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(RejectedInput) as refused:
        told(tmp_path, "file", content)
    assert refused.value.kind == "unsupported"
    assert says in refused.value.detail


def test_sniffing_imports_no_extraction_library() -> None:
    import subprocess
    import sys

    code = "import sys, pipeline.documents.sniff; print({'kreuzberg', 'pypdfium2', 'PIL'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
