"""The media types that Tidegate takes, and the room that reads each."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ARCHIVES", "Family", "family_of"]

CSV = "text/csv"
DOC = "application/msword"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
EML = "message/rfc822"
# A password-protected Office file: an OLE container around an encrypted package.
ENCRYPTED_OFFICE = "application/vnd.ms-office.encrypted"
EPUB = "application/epub+zip"
HTML = "text/html"
JSON = "application/json"
JSONL = "application/x-ndjson"
MARKDOWN = "text/markdown"
MBOX = "application/mbox"
MSG = "application/vnd.ms-outlook"
ODP = "application/vnd.oasis.opendocument.presentation"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODT = "application/vnd.oasis.opendocument.text"
PDF = "application/pdf"
PLAIN = "text/plain"
PPT = "application/vnd.ms-powerpoint"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
RTF = "application/rtf"
# Compressed ones included.
TAR = "application/x-tar"
TSV = "text/tab-separated-values"
XLS = "application/vnd.ms-excel"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
XML = "application/xml"
ZIP = "application/zip"

ARCHIVES: dict[str, str] = {ZIP: "a ZIP archive", TAR: "a tar archive", MBOX: "a mailbox (mbox)"}
"""What no reader takes, but what is in it; in words."""


class Family(StrEnum):
    """Which room of ``documents/`` reads a file."""

    PDF = "pdf"
    IMAGE = "image"
    OFFICE = "office"
    TEXT = "text"


_FAMILIES: dict[str, Family] = {
    PDF: Family.PDF,
    "image/png": Family.IMAGE,
    "image/jpeg": Family.IMAGE,
    "image/tiff": Family.IMAGE,
    "image/webp": Family.IMAGE,
    "image/bmp": Family.IMAGE,
    "image/gif": Family.IMAGE,
    DOCX: Family.OFFICE,
    PPTX: Family.OFFICE,
    XLSX: Family.OFFICE,
    ODT: Family.OFFICE,
    ODS: Family.OFFICE,
    ODP: Family.OFFICE,
    EPUB: Family.OFFICE,
    RTF: Family.OFFICE,
    EML: Family.OFFICE,
    HTML: Family.OFFICE,
    XML: Family.OFFICE,
    DOC: Family.OFFICE,
    XLS: Family.OFFICE,
    PPT: Family.OFFICE,
    MSG: Family.OFFICE,
    # Read by nobody, but an office file all the same: its reader says that it needs a password.
    ENCRYPTED_OFFICE: Family.OFFICE,
    PLAIN: Family.TEXT,
    MARKDOWN: Family.TEXT,
    CSV: Family.TEXT,
    TSV: Family.TEXT,
    JSON: Family.TEXT,
    JSONL: Family.TEXT,
}


def family_of(media_type: str) -> Family | None:
    """The room that reads ``media_type``; None when no room does."""
    return _FAMILIES.get(media_type)
