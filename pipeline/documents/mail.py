"""E-mail: its headers that people read, and its best body. What it carries besides is in ``attachments``."""

from __future__ import annotations

import base64
import re
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart

from pipeline.documents.attachments import AnyMessage, attachments, inline_images
from pipeline.documents.encodings import decode
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["read_mail"]

_SHOWN = ("Subject", "From", "To", "Cc", "Date")


def read_mail(data: bytes) -> tuple[str | None, str, str, bool]:
    """Read an RFC 822 message.

    Returns:
        The subject, the headers as Markdown, the body, and whether that body is HTML. The HTML is preferred where it
        shows pictures that the mail carries; they are in it as ``data:`` addresses.

    Raises:
        RejectedInput: ``corrupt``.
    """
    files = [one.name for one in attachments(data)]
    message = message_from_bytes(data, policy=policy.default)
    try:
        head = "\n".join(_header(name, value) for name in _SHOWN if (value := _value(message, name)))
        if files:
            head += "\n" + _header("Attachments", ", ".join(files))
        pictures = inline_images(message)
        part = message.get_body(preferencelist=("html", "plain") if pictures else ("plain", "html"))
        is_html = part is not None and part.get_content_subtype() == "html"
        body = _text(part) if part is not None else ""
        body = _with_pictures(body, pictures) if is_html else "\n\n".join([body, *_further_texts(message, part)])
        subject = _value(message, "Subject")
    except (LookupError, ValueError, AttributeError, TypeError, RecursionError) as exc:
        raise RejectedInput("corrupt", f"not a readable message: {exc}") from exc
    return subject or None, safe_text(head), safe_text(body), is_html


def _further_texts(message: EmailMessage, body: MIMEPart | None) -> list[str]:
    """Plain text that follows the body, as where a picture or a mailing list's footer cuts a mail in pieces."""
    if message.get_content_type() != "multipart/mixed":
        return []
    return [
        text
        for part in message.iter_parts()
        if part is not body
        and part.get_content_type() == "text/plain"
        and not part.is_attachment()
        and part.get_filename() is None
        and (text := _text(part).strip())
    ]


def _with_pictures(html: str, pictures: dict[str, AnyMessage]) -> str:
    for name, part in pictures.items():
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes):
            # What kind of picture it is, its bytes say.
            address = f"data:image/png;base64,{base64.b64encode(payload).decode('ascii')}"
            html = re.sub(rf"\bcid:{re.escape(name)}(?=[\"'\s>)])", address, html, count=1)
    return html


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
