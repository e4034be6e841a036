"""E-mail: its headers that people read, and its best body. Attachments are named, not read."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart

from pipeline.documents.encodings import decode
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["read_mail"]

_SHOWN = ("Subject", "From", "To", "Cc", "Date")


def read_mail(data: bytes) -> tuple[str | None, str, str, bool]:
    """Read an RFC 822 message.

    Returns:
        The subject, the headers as Markdown, the body, and whether that body is HTML.

    Raises:
        RejectedInput: ``corrupt``.
    """
    message = message_from_bytes(data, policy=policy.default)
    try:
        head = "\n".join(_header(name, value) for name in _SHOWN if (value := _value(message, name)))
        files = [part.get_filename() or "unnamed" for part in message.iter_attachments()]
        if files:
            head += "\n" + _header("Attachments", ", ".join(files))
        part = message.get_body(preferencelist=("plain", "html"))
        body = _text(part) if part is not None else ""
        subject = _value(message, "Subject")
    except (LookupError, ValueError, AttributeError, TypeError, RecursionError) as exc:
        raise RejectedInput("corrupt", f"not a readable message: {exc}") from exc
    is_html = part is not None and part.get_content_subtype() == "html"
    return subject or None, safe_text(head), safe_text(body), is_html


def _value(message: EmailMessage, name: str) -> str:
    return " ".join(str(message.get(name, "")).split())


def _header(name: str, value: str) -> str:
    # Two spaces at its end keep a line a line in Markdown.
    return f"**{name}**: {value}  "


def _text(part: MIMEPart) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    charset = part.get_content_charset()
    if charset:
        try:
            return payload.decode(charset)
        except (LookupError, UnicodeDecodeError):
            return decode(payload)
    return decode(payload)
