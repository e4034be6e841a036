"""Works around a reader that drops XML entities in DOCX text: "R&amp;D" came out as "RD" (kreuzberg 4.10.4).

Entities are replaced before the reader sees them: markup ones by private characters that nothing else uses, the rest by
what they stand for.
"""

from __future__ import annotations

import io
import re
import zipfile

__all__ = ["keep_entities", "restore_entities"]

_STAND_INS = {"amp": "\U0010fff0", "lt": "\U0010fff1", "gt": "\U0010fff2", "quot": '"', "apos": "'"}
_BACK = {"\U0010fff0": "&", "\U0010fff1": "\\<", "\U0010fff2": ">"}
_RESTORE = re.compile("[\U0010fff0-\U0010fff2]")
_REFERENCE = re.compile(r"&(amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
# Only after tags: in an attribute a quote would end it, and attributes are read right.
_TEXT = re.compile(r">[^<>]*")
_PARTS = re.compile(r"^word/(document|footnotes|endnotes|comments|header\d*|footer\d*)\.xml$")


def keep_entities(docx: bytes) -> bytes:
    """Rewrite a DOCX so that no entity stands in its text. A package whose parts hold none is returned as it is."""
    with zipfile.ZipFile(io.BytesIO(docx)) as source:
        changed: dict[str, bytes] = {}
        for name in source.namelist():
            if _PARTS.match(name) and b"&" in (part := source.read(name)):
                text = part.decode("utf-8", "replace")
                changed[name] = _TEXT.sub(lambda match: _REFERENCE.sub(_stand_in, match.group()), text).encode("utf-8")
        if not changed:
            return docx
        rewritten = io.BytesIO()
        with zipfile.ZipFile(rewritten, "w") as target:
            for name in dict.fromkeys(source.namelist()):
                target.writestr(name, changed[name] if name in changed else source.read(name))
    return rewritten.getvalue()


def restore_entities(markdown: str) -> str:
    """Put the characters back into the text that was read."""
    return _RESTORE.sub(lambda match: _BACK[match.group()], markdown)


def _stand_in(match: re.Match[str]) -> str:
    name = match.group(1)
    if name in _STAND_INS:
        return _STAND_INS[name]
    code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    if code in (0x26, 0x3C, 0x3E):
        return _STAND_INS[{0x26: "amp", 0x3C: "lt", 0x3E: "gt"}[code]]
    # What XML doesn't allow stays a reference, and the reader's business.
    allowed = code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF
    return chr(code) if allowed else match.group()
