"""The media type of a file, told from its bytes.

Every enqueued file passes here, so it is cheap: the first 64 KB, and a container's directory. The name is believed in
one case only: among kinds of text that look alike (Markdown, CSV, plain).
"""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.documents import media
from pipeline.documents.containers import ole_media_type, zip_media_type
from pipeline.documents.encodings import looks_like_text, start_as_text
from pipeline.documents.mailboxes import is_mailbox
from pipeline.documents.tars import is_tar, tar_start
from pipeline.domain.errors import RejectedInput

__all__ = ["sniff"]

_HEAD_BYTES = 65_536
_PDF_WITHIN = 1024

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"II+\x00", "image/tiff"),
    (b"MM\x00+", "image/tiff"),
    (b"{\\rtf", media.RTF),
)
_IMAGE_MAGIC: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    # "BM" alone starts many a text; a bitmap's two reserved words are zero.
    (re.compile(rb"BM.{4}\x00{4}.{16}", re.DOTALL), "image/bmp"),
)
_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "a gzip archive; unpack it and enqueue what is in it"),
    (b"BZh", "a bzip2 archive; unpack it and enqueue what is in it"),
    (b"\xfd7zXZ\x00", "an xz archive; unpack it and enqueue what is in it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it and enqueue what is in it"),
    (b"Rar!\x1a\x07", "a RAR archive; unpack it and enqueue what is in it"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it and enqueue what is in it"),
    (b"\x04\x22\x4d\x18", "an LZ4 archive; unpack it and enqueue what is in it"),
    (b"LZIP\x01", "an lzip archive; unpack it and enqueue what is in it"),
    (b"\x1f\x9d", "a compressed (.Z) file; unpack it and enqueue what is in it"),
    (b"PK\x07\x08", "the first part of a split ZIP archive; put its parts together and enqueue the whole"),
    (
        b"\x78\x9f\x3e\x22",
        "a winmail.dat, in which Outlook packs attachments; have the mail sent as HTML or plain text",
    ),
    (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"),
    (b"OggS", "a sound or video file"),
    (b"ID3", "a sound file"),
    (b"fLaC", "a sound file"),
    (b"SQLite format 3\x00", "an SQLite database"),
)
# DER or BER, then what it says it holds (PKCS #7).
_SEALED = re.compile(rb"0(?:\x80|[\x81-\x84].{1,4}?)\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07[\x01-\x06]", re.DOTALL)
_MP4_AT = 4
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

_BY_SUFFIX: dict[str, str] = {
    ".md": media.MARKDOWN,
    ".markdown": media.MARKDOWN,
    ".mdx": media.MARKDOWN,
    ".csv": media.CSV,
    ".tsv": media.TSV,
    ".tab": media.TSV,
    ".json": media.JSON,
    ".jsonl": media.JSONL,
    ".ndjson": media.JSONL,
    ".html": media.HTML,
    ".htm": media.HTML,
    ".xhtml": media.HTML,
    ".xml": media.XML,
    ".eml": media.EML,
}
_HTML = re.compile(r"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]", re.IGNORECASE)
_XML_START = re.compile(r"<\?xml[\s?]")
_FIRST_TAG = re.compile(r"<\s*([A-Za-z_][\w.:-]*)")
_MAIL_HEADER = re.compile(r"^([A-Za-z][A-Za-z0-9-]{1,60}):[ \t]?\S", re.MULTILINE)
# What a mail keeps of the mailbox that it was taken from.
_POSTMARK = re.compile(r"\AFrom .*\n")
_MAIL_HEADERS = frozenset(
    {"from", "to", "subject", "date", "message-id", "received", "mime-version", "return-path", "delivered-to"}
)


def sniff(path: Path, head: bytes | None = None) -> str:
    """Tell a file's media type from its bytes.

    Args:
        path: The file; its name only decides between kinds of text.
        head: Its first 64 KB, where they have been read already.

    Returns:
        A media type that one of the readers takes, or that of an archive (``media.ARCHIVES``), which holds such files.
        A damaged file of a known kind has that kind: reading it says what is wrong.

    Raises:
        RejectedInput: ``unsupported``: no reader takes such a file.
        OSError: The file can't be read.
    """
    if head is None:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    media_type = _binary_kind(path, head)
    return media_type if media_type is not None else _text_kind(path, head)


def _binary_kind(path: Path, head: bytes) -> str | None:
    if b"%PDF-" in head[:_PDF_WITHIN]:
        return media.PDF
    for magic, media_type in _MAGIC:
        if head.startswith(magic):
            return media_type
    for image, media_type in _IMAGE_MAGIC:
        if image.match(head):
            return media_type
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return zip_media_type(path, head)
    is_whole = len(head) < _HEAD_BYTES or path.suffix.lower() == ".eml"
    if head.startswith(b"From ") and is_mailbox(head, is_whole=is_whole):
        return media.MBOX
    if head.startswith(_OLE):
        return _ole(path)
    if is_tar(head) or is_tar(tar_start(path, head)):
        return media.TAR
    _refuse(head)
    return None


def _refuse(head: bytes) -> None:
    """Name the well-known kinds that no reader takes."""
    for magic, what in _REFUSED:
        if head.startswith(magic):
            raise RejectedInput("unsupported", what)
    if _SEALED.match(head):
        raise RejectedInput("unsupported", "what S/MIME has signed or encrypted")
    if head[_MP4_AT : _MP4_AT + 4] == b"ftyp":
        raise RejectedInput("unsupported", "a video or an image of a kind that is not read (MP4, HEIC, AVIF)")


def _ole(path: Path) -> str:
    media_type = ole_media_type(path)
    if media_type is None:
        raise RejectedInput("unsupported", "an OLE file of an unknown kind (not Word, Excel, PowerPoint or Outlook)")
    return media_type


def _text_kind(path: Path, head: bytes) -> str:
    if not looks_like_text(head):
        raise RejectedInput("unsupported", "binary data of an unknown kind")
    text = start_as_text(head).lstrip()
    by_name = _BY_SUFFIX.get(path.suffix.lower())
    if _XML_START.match(text):
        return media.HTML if _HTML.search(text[:2000]) else media.XML
    if text.startswith("<") and _HTML.search(text[:4000]):
        return media.HTML
    if by_name is not None:
        return by_name
    if _is_mail(text):
        return media.EML
    if text.startswith("<") and len(_FIRST_TAG.findall(text[:4000])) >= 3 and text.count("</") >= 2:
        return media.HTML
    return media.PLAIN


def _is_mail(text: str) -> bool:
    headers, _, _ = _POSTMARK.sub("", text.replace("\r\n", "\n")).partition("\n\n")
    first = _MAIL_HEADER.match(headers)
    if first is None:
        return False
    found = {name.lower() for name in _MAIL_HEADER.findall(headers)} & _MAIL_HEADERS
    return len(found) >= 3 and "from" in found
