"""E-mail: its headers that people read, and its best body. What it carries besides is in ``attachments``."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage, Message, MIMEPart
from html import escape

from pipeline.documents.attachments import AnyMessage, attachments, inline_images, is_file, known_labels
from pipeline.documents.encodings import decode, decode_as
from pipeline.documents.labels import charset
from pipeline.documents.markup import html_text
from pipeline.documents.sealed import unwrapped
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["MARKED_UTF_8", "read_mail"]

# The mark outdoes what a page declares of itself, which was true before it was decoded.
MARKED_UTF_8 = "utf-8-sig"
_SHOWN = ("Subject", "From", "To", "Cc", "Date")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_ADDRESS = re.compile(r"\bhttps?://\S+|\bwww\.\S+", re.IGNORECASE)
# Chinese and Japanese have no space between words: there a character counts as one, wherever a line is broken.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
_MARKED_UP = frozenset({"text/html", "text/enriched"})
_NO_WORDS = frozenset({"text/css", "text/javascript", "text/rtf"})
# A plain part that stands for the HTML has nearly all of its words; a stub or a first paragraph has few.
_SHARE_UNSAID = 1 / 3


def read_mail(data: bytes) -> tuple[str | None, str, str, bool]:
    """Read an RFC 822 message.

    Returns:
        The subject, the headers as Markdown, the body, and whether that body is HTML. The HTML is preferred where it
        shows pictures that the mail carries, which are in it as ``data:`` addresses, and where it says far more.

    Raises:
        RejectedInput: ``corrupt``.
    """
    files = [one.name for one in attachments(data)]
    message = message_from_bytes(_with_plain_head(unwrapped(data)), policy=policy.default)
    try:
        head = "\n".join(_header(name, value) for name in _SHOWN if (value := _value(message, name)))
        if files:
            head += "\n" + _header("Attachments", ", ".join(files))
        pictures = inline_images(message)
        part = _best(message, has_pictures=bool(pictures))
        is_html = part is not None and part.get_content_subtype() == "html"
        body = _text(part) if part is not None else ""
        further = list(_further_texts(message, part))
        if is_html:
            pieces = [text if marked_up else f"<pre>{escape(text)}</pre>" for text, marked_up in further]
            body = "".join(_with_pictures(text, pictures) for text in (body, *pieces))
        else:
            said = [html_text(text.encode(MARKED_UTF_8)) if marked_up else text for text, marked_up in further]
            body = "\n\n".join(filter(None, [body, *said]))
        subject = _value(message, "Subject")
    except (LookupError, ValueError, AttributeError, TypeError, RecursionError) as exc:
        raise RejectedInput("corrupt", f"not a readable message: {exc}") from exc
    return subject or None, safe_text(head), safe_text(body), is_html


def _best(message: EmailMessage, *, has_pictures: bool) -> MIMEPart | None:
    if has_pictures:
        return message.get_body(preferencelist=("html", "plain"))
    plain = message.get_body(preferencelist=("plain",))
    if plain is None:
        return message.get_body(preferencelist=("html",))
    html = _alternative(message, plain)
    return html if html is not None and _says_more(html, plain) else plain


def _alternative(message: EmailMessage, plain: MIMEPart) -> MIMEPart | None:
    """The HTML that says the same as a plain part; what merely follows it is no substitute."""
    for part in message.walk():
        if part.get_content_type() == "multipart/alternative" and any(one is plain for one in part.walk()):
            return part.get_body(preferencelist=("html",))
    return None


def _says_more(html: MIMEPart, plain: MIMEPart) -> bool:
    """Tell whether HTML has clearly more words than the plain part beside it: more, and a third of them not in that.

    A mailer may write a stub as the plain part ("Your client does not show HTML"), or a beginning. The number alone
    does not tell: a stub may be long, and the HTML of an honest pair has a few words more, for its buttons.
    """
    shown, said = _words(html_text(_text(html).encode(MARKED_UTF_8))), _words(_text(plain))
    unsaid = shown - said
    return shown.total() > said.total() and unsaid.total() > _SHARE_UNSAID * shown.total()


def _words(text: str) -> Counter[str]:
    # The plain part spells out the addresses behind links, which are no words of it.
    return Counter(_WORD.findall(_ADDRESS.sub(" ", text).casefold()))


def _further_texts(part: AnyMessage, body: MIMEPart | None) -> Iterator[tuple[str, bool]]:
    """Text beside the body with whether it is HTML, as where a picture or a list's footer cuts a mail in pieces.

    Of alternatives one says it all.
    """
    kind = part.get_content_type()
    if part is body or is_file(part):
        return
    if kind == "message/delivery-status":
        yield "\n".join(str(one).strip() for one in part.get_payload() if isinstance(one, Message)), False
    elif part.is_multipart() and kind != "message/rfc822":
        parts = [one for one in part.get_payload() if isinstance(one, Message)]
        if kind == "multipart/alternative":
            parts = [] if any(one is body for one in part.walk()) else parts[:1]
        for one in parts:
            yield from _further_texts(one, body)
    elif part.get_content_maintype() in ("text", "multipart") and kind not in _NO_WORDS:
        text = _text(part).strip()
        if text:
            yield text, kind in _MARKED_UP


def _with_pictures(html: str, pictures: dict[str, AnyMessage]) -> str:
    for name, part in pictures.items():
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes):
            # What kind of picture it is, its bytes say.
            address = f"data:image/png;base64,{base64.b64encode(payload).decode('ascii')}"
            html = re.sub(rf"\bcid:{re.escape(name)}(?=[\"'\s>)])", address, html, count=1)
    return html


def _with_plain_head(data: bytes) -> bytes:
    """The mail with headers that the library reads: it knows no raw text but UTF-8, and few names of encodings."""
    end = _HEAD_END.search(data)
    at = end.start() if end is not None else len(data)
    return known_labels(decode(data[:at])).encode("utf-8", "surrogateescape") + data[at:]


def _value(message: EmailMessage, name: str) -> str:
    return " ".join(str(message.get(name, "")).split())


def _header(name: str, value: str) -> str:
    # Two spaces at its end keep a line a line in Markdown.
    return f"**{name}**: {value}  "


def _text(part: AnyMessage) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    name = charset(part.get_content_charset() or "")
    text = decode_as(payload, name) if name is not None else None
    return text if text is not None else decode(payload, declares=part.get_content_subtype() == "html")
