"""The attachments of an Outlook message ([MS-OXMSG] 2.2.2)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pipeline.documents.compound import Compound, Item
from pipeline.documents.encodings import decode
from pipeline.documents.job import Job
from pipeline.documents.members import Found, file_name, unlike
from pipeline.domain.errors import RejectedInput

__all__ = ["may_have_attachments", "msg_members"]

_ATTACHMENT = "__attach_version1.0_#"
_HINT = _ATTACHMENT.encode("utf-16-le")
_STREAM, _PROPERTIES = "__substg1.0_", "__properties_version1.0"
_DATA, _OBJECT = "37010102", "3701000D"
_LONG_NAME, _NAME = "3707", "3704"
_UNICODE, _BYTES = "001F", "001E"
_HIDDEN = 0x7FFE000B


def may_have_attachments(data: bytes) -> bool:
    """Tell at a glance that a message has none; taking it apart is for a child."""
    return _HINT in data


def msg_members(job: Job) -> Iterator[Found | None]:
    """Yield a message's attachments; None for one that it hides, as the pictures of its HTML are.

    Raises:
        RejectedInput: ``corrupt``.
    """
    file = Compound(job.path.read_bytes())
    names: set[str] = set()
    storages = sorted(name for name in file.root.items if name.startswith(_ATTACHMENT))
    for number, storage in enumerate(storages, 1):
        items = file.root.items[storage].items
        if _is_hidden(file, items):
            yield None
            continue
        name = unlike(file_name(_name(file, items)) or f"part-{number}", names)
        names.add(name)
        data = items.get(_STREAM + _DATA)
        if data is None:
            what = "an Outlook item or an object" if _STREAM + _OBJECT in items else "nothing"
            yield Found(name, 0, (), RejectedInput("unsupported", f"it holds {what}, which is not read"))
        else:
            yield Found(name, data.size_bytes, file.read(data))


def _name(file: Compound, items: dict[str, Item]) -> str:
    for tag in (_LONG_NAME, _NAME):
        if (item := items.get(_STREAM + tag + _UNICODE)) is not None:
            return b"".join(file.read(item)).decode("utf-16-le", "replace")
        if (item := items.get(_STREAM + tag + _BYTES)) is not None:
            return decode(b"".join(file.read(item)))
    return ""


def _is_hidden(file: Compound, items: dict[str, Item]) -> bool:
    properties = items.get(_PROPERTIES)
    if properties is None:
        return False
    rows = b"".join(file.read(properties))[8:]
    return any(
        tag == _HIDDEN and value & 1 for tag, value in struct.iter_unpack("<I4xB7x", rows[: len(rows) // 16 * 16])
    )
