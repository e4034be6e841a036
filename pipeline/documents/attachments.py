"""What a mail carries beside its text: its attachments as files, and the pictures that its HTML shows."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as BadBase64
from binascii import a2b_qp
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.errors import HeaderParseError, MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import TypeAlias

from pipeline.documents.job import Job
from pipeline.documents.labels import charset
from pipeline.documents.members import Found, file_name, unlike
from pipeline.documents.sealed import unwrapped
from pipeline.domain.errors import RejectedInput
from pipeline.domain.text import safe_text

__all__ = [
    "Attachment",
    "attachments",
    "inline_images",
    "is_file",
    "known_labels",
    "mail_members",
    "may_have_attachments",
]

# Subscripted for the type checker alone: at run time the class takes no parameters before Python 3.13.
AnyMessage: TypeAlias = "Message[str, str]"

_BROKEN = (
    MessageError, BadBase64, LookupError, ValueError, AttributeError, TypeError, RecursionError, AssertionError,
)  # fmt: skip
# Said of a mail's parts as they lie in it; a mail without any of it has no attachment, and costs no child.
_HINT = re.compile(
    rb"content-disposition\s*:\s*attachment|name\*?\d*\*?\s*=|content-type\s*:\s*(?!\s|text/|multipart/)", re.IGNORECASE
)
_SIGNATURES = frozenset(
    {
        "application/pgp-signature",
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
        "application/pgp-keys",
    }
)
_SHOWN = re.compile(r"""\bcid:([^"'\s>)]+)""", re.IGNORECASE)
_WORD_LABEL = re.compile(r"=\?([A-Za-z0-9._:-]{2,40})((?:\*[A-Za-z0-9-]{0,20})?\?[BbQq]\?)")
_MAX_PARTS = 10_000
# Headers as they are written, and no ">" before a line that starts with "From ".
_AS_WRITTEN = policy.compat32.clone(mangle_from_=False, max_line_length=0)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A part of a mail that is a file.

    Attributes:
        name: Its file name, unlike any other of this mail.
    """

    name: str
    part: AnyMessage

    def content(self) -> bytes:
        """Its bytes.

        Raises:
            RejectedInput: ``corrupt``.
        """
        try:
            if self.part.get_content_type() == "message/rfc822":
                return _inner_mail(self.part)
            payload = self.part.get_payload(decode=True)
        except _BROKEN as exc:
            raise RejectedInput("corrupt", f"it can't be taken out of its mail: {safe_text(str(exc))}") from exc
        return payload if isinstance(payload, bytes) else b""


def _inner_mail(part: AnyMessage) -> bytes:
    inner = part.get_payload(0)
    if not isinstance(inner, Message):
        return b""
    coded = inner.as_bytes(policy=_AS_WRITTEN)
    # Not allowed for a mail within a mail (RFC 2046, 5.2.1), and done all the same.
    match str(part.get("Content-Transfer-Encoding", "")).strip().lower():
        case "base64":
            return b64decode(coded)
        case "quoted-printable":
            return a2b_qp(coded)
        case _:
            return coded


def may_have_attachments(data: bytes) -> bool:
    """Tell at a glance that a mail has none; parsing it is for a child."""
    return _HINT.search(data) is not None


def mail_members(job: Job) -> Iterator[Found | None]:
    """Yield a mail's attachments.

    Raises:
        RejectedInput: ``corrupt``: it is no readable message.
    """
    for one in attachments(job.path.read_bytes()):
        yield Found(one.name, 0, _content(one))


def _content(attachment: Attachment) -> Iterator[bytes]:
    yield attachment.content()


def attachments(data: bytes) -> list[Attachment]:
    """The files in a mail, in its order: not its text, not the pictures that stand in it, not signatures.

    Raises:
        RejectedInput: ``corrupt`` or ``unsafe`` (parts without end).
    """
    message = _parsed(unwrapped(data))
    shown = set(inline_images(message))
    found: list[Attachment] = []
    names: set[str] = set()
    for number, part in enumerate(_leaves(message), 1):
        try:
            name = _name(part, number)
            is_file = name is not None and part.get_content_type() not in _SIGNATURES and _content_id(part) not in shown
        except _BROKEN as exc:
            raise RejectedInput("corrupt", f"not a readable message: {safe_text(str(exc))}") from exc
        if is_file and name is not None:
            own = unlike(name, names)
            names.add(own)
            found.append(Attachment(own, part))
    return found


def inline_images(message: AnyMessage) -> dict[str, AnyMessage]:
    """The pictures that a mail's HTML shows, by the content id that it names them with."""
    leaves = _leaves(message)
    named: set[str] = set()
    for part in leaves:
        if part.get_content_type() == "text/html" and not is_file(part):
            payload = part.get_payload(decode=True)
            if isinstance(payload, bytes):
                named.update(_SHOWN.findall(payload.decode("latin-1")))
    if not named:
        return {}
    images = (part for part in leaves if part.get_content_maintype() == "image")
    return {name: part for part in images if (name := _content_id(part)) in named}


def _parsed(data: bytes) -> AnyMessage:
    try:
        # The older policy keeps headers as they are written, so that an attached mail comes out as it went in.
        return message_from_bytes(data, policy=_AS_WRITTEN)
    except _BROKEN as exc:
        raise RejectedInput("corrupt", f"not a readable message: {safe_text(str(exc))}") from exc


def _leaves(message: AnyMessage) -> list[AnyMessage]:
    """The parts that hold something themselves; a mail within the mail is one of them."""
    leaves: list[AnyMessage] = []
    waiting: list[AnyMessage] = [message]
    while waiting:
        part = waiting.pop()
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            inner = part.get_payload()
            waiting.extend(one for one in reversed(inner) if isinstance(one, Message))  # type: ignore[arg-type]
        else:
            leaves.append(part)
        if len(leaves) + len(waiting) > _MAX_PARTS:
            raise RejectedInput("unsafe", f"the mail has more than {_MAX_PARTS:,} parts")
    return leaves


def is_file(part: AnyMessage) -> bool:
    """Whether a part is meant to be saved, not read."""
    return part.get_content_disposition() == "attachment" or part.get_filename() is not None


def _name(part: AnyMessage, number: int) -> str | None:
    """What a part is called as a file; None for one that is the mail's text."""
    if part.get_content_type() == "message/rfc822":
        given = _given_name(part)
        return given if given.lower().endswith(".eml") else f"{given or f'message-{number}'}.eml"
    if is_file(part):
        return _given_name(part) or f"part-{number}"
    return None if part.get_content_maintype() in ("text", "multipart", "message") else f"part-{number}"


def _given_name(part: AnyMessage) -> str:
    raw = part.get_param("filename", None, "content-disposition") or part.get_param("name", None, "content-type") or ""
    name = collapse_rfc2231_value(raw)
    if "=?" in name:
        try:
            name = str(make_header(decode_header(known_labels(name))))
        except (HeaderParseError, LookupError, UnicodeError, ValueError):
            # As it stands, then: a name is a name.
            return file_name(name)
    return file_name(name)


def known_labels(headers: str) -> str:
    """Encoded words (RFC 2047) with the encoding that they mean by Python's name."""
    return _WORD_LABEL.sub(lambda match: f"=?{charset(match[1]) or match[1]}{match[2]}", headers)


def _content_id(part: AnyMessage) -> str:
    return str(part.get("Content-ID", "")).strip().strip("<>")
