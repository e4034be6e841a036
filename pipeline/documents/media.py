"""The media types that Tidegate takes, and the room that reads each."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Family", "family_of"]

CSV = "text/csv"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
EML = "message/rfc822"
# A password-protected Office file: an OLE container around an encrypted package.
ENCRYPTED_OFFICE = "application/vnd.ms-office.encrypted"
EPUB = "application/epub+zip"
HTML = "text/html"
JSON = "application/json"
JSONL = "application/x-ndjson"
MARKDOWN = "text/markdown"
ODP = "application/vnd.oasis.opendocument.presentation"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODT = "application/vnd.oasis.opendocument.text"
PDF = "application/pdf"
PLAIN = "text/plain"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
RTF = "application/rtf"
TSV = "text/tab-separated-values"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
XML = "application/xml"
ZIP = "application/zip"


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
    "application/msword": Family.OFFICE,
    "application/vnd.ms-excel": Family.OFFICE,
    "application/vnd.ms-powerpoint": Family.OFFICE,
    "application/vnd.ms-outlook": Family.OFFICE,
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
