"""Works around what a reader loses of a DOCX's text (kreuzberg 4.10.4), by rewriting its parts before it sees them.

- XML entities: "R&amp;D" came out as "RD". Markup ones become private characters that nothing else uses, the rest what
  they stand for.
- Tabs, and line ends and hyphens of the rarer kinds: the words around them were joined.
- Drop caps: a paragraph of their own, which tore the first letter from its word.
- Notes: the first of them, those in tables, and of a footnote and an endnote of one number the one were lost. What
  refers to a note becomes text, and their own text is read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipeline.documents.package import Package, in_utf8, line_of, renamed, rewritten

__all__ = ["MAIN", "comments", "keep_text", "notes", "restore_text", "usual_names"]

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MAIN = "word/document.xml"
_KINDS = ("styles", "numbering", "footnotes", "endnotes", "comments")
_STAND_INS = {"amp": "\U0010fff0", "lt": "\U0010fff1", "gt": "\U0010fff2", "quot": '"', "apos": "'"}
_BACK = {"\U0010fff0": "&", "\U0010fff1": "\\<", "\U0010fff2": ">"}
_RESTORE = re.compile("[\U0010fff0-\U0010fff2]")
_NOTE_STAND_IN = re.compile("\U0010fff3(foot|end)(\\d+)\U0010fff3")
_REFERENCE = re.compile(r"&(amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
# Only after tags: in an attribute a quote would end it, and attributes are read right.
_TEXT = re.compile(r">[^<>]*")
_PARTS = re.compile(r"^word/(document|comments|header\d*|footer\d*)\.xml$")
# The tabs that a paragraph defines have attributes.
_MARK = re.compile(r"<w:(?:(tab|cr|noBreakHyphen)|ptab\b[^<>]*)\s*/>")
_MARKS = {"cr": "<w:br/>", "noBreakHyphen": "<w:t>-</w:t>"}
_GAP = '<w:t xml:space="preserve"> </w:t>'
_NOTE = re.compile(r"<w:(foot|end)noteReference\b[^<>]*?\bw:id=[\"'](\d{1,9})[\"'][^<>]*/>")
_NOTE_TEXT = "<w:t>\U0010fff3\\1\\2\U0010fff3</w:t>"
_DROP_CAP = re.compile(r"\bw:dropCap=[\"'](?:drop|margin)[\"']")
_PARAGRAPH_END = "</w:p>"
# A letter's paragraph is short.
_NEAR_CHARS = 2000
# A paragraph's beginning, up to where its text starts.
_BEGINNING = re.compile(r"\s*<w:p(?:\s[^<>/]*)?>(?:<w:pPr/>|<w:pPr>(?:(?!</w:p>).){0,2000}?</w:pPr>)?", re.DOTALL)
_WORDS = re.compile(r"<w:t(?:\s[^<>]*)?>([^<]*)</w:t>")
_BREAKS = frozenset({f"{_WORD}tab", f"{_WORD}br", f"{_WORD}cr"})


def usual_names(docx: bytes) -> bytes:
    """The same with its parts called as the reader expects: programs on the web write ``word/document2.xml``."""
    with Package(docx) as package:
        main = next(iter(package.related("", "officeDocument").values()), MAIN)
        names = {main: MAIN} if package.part(MAIN) is None else {}
        for kind in _KINDS:
            usual = f"word/{kind}.xml"
            if package.part(usual) is None:
                names |= dict.fromkeys(list(package.related(main, kind).values())[:1], usual)
    moved = {old: new for old, new in names.items() if old.startswith("word/") and old != new}
    return renamed(docx, moved) if moved else docx


def keep_text(docx: bytes) -> bytes:
    """Rewrite a DOCX so that nothing of its text is lost."""
    return rewritten(docx, _PARTS, in_utf8(_kept))


def notes(package: Package) -> dict[tuple[str, str], str]:
    """The text of each footnote (``foot``) and endnote (``end``) by its kind and number, a paragraph a line."""
    found: dict[tuple[str, str], str] = {}
    for kind in ("foot", "end"):
        part = package.xml(f"word/{kind}notes.xml")
        for note in part.iter(f"{_WORD}{kind}note") if part is not None else ():
            lines = (line_of(paragraph, f"{_WORD}t", _BREAKS) for paragraph in note.iter(f"{_WORD}p"))
            found[kind, note.get(f"{_WORD}id", "")] = "\n    ".join(filter(None, lines))
    return found


def comments(package: Package) -> list[str]:
    """What readers wrote in the margin, each as a line with its author."""
    part = package.xml("word/comments.xml")
    found: list[str] = []
    for comment in part.iter(f"{_WORD}comment") if part is not None else ():
        lines = (line_of(paragraph, f"{_WORD}t", _BREAKS) for paragraph in comment.iter(f"{_WORD}p"))
        if words := " ".join(filter(None, lines)):
            found.append(": ".join(filter(None, [comment.get(f"{_WORD}author", "").strip(), words])))
    return found


def restore_text(markdown: str, said: Mapping[tuple[str, str], str]) -> str:
    """Put the characters back into the text that was read, and the notes in the order of what refers to them after it.

    Args:
        said: The text of the notes.
    """
    numbers: dict[tuple[str, str], int] = {}

    def refer(match: re.Match[str]) -> str:
        note = (match[1], match[2])
        return f"[^{numbers.setdefault(note, len(numbers) + 1)}]" if said.get(note) else ""

    referring = _NOTE_STAND_IN.sub(refer, _RESTORE.sub(lambda match: _BACK[match.group()], markdown))
    return "\n\n".join([referring.rstrip(), *(f"[^{number}]: {said[note]}" for note, number in numbers.items())])


def _with_drop_caps(part: str) -> str:
    """Put each letter that hangs before a paragraph into it."""
    kept: list[str] = []
    done = 0
    for frame in _DROP_CAP.finditer(part):
        near = max(done, frame.start() - _NEAR_CHARS)
        start = max(part.rfind("<w:p>", near, frame.start()), part.rfind("<w:p ", near, frame.start()))
        end = part.find(_PARAGRAPH_END, frame.end(), frame.end() + _NEAR_CHARS) + len(_PARAGRAPH_END)
        letters = "".join(_WORDS.findall(part, frame.end(), end))
        after = _BEGINNING.match(part, end)
        if start >= 0 and letters and after is not None:
            kept += [part[done:start], after[0], f'<w:r><w:t xml:space="preserve">{letters}</w:t></w:r>']
            done = after.end()
    return "".join([*kept, part[done:]])


def _kept(part: str) -> str:
    part = _with_drop_caps(part)
    if "&" in part:
        part = _TEXT.sub(lambda match: _REFERENCE.sub(_stand_in, match.group()), part)
    return _NOTE.sub(_NOTE_TEXT, _MARK.sub(lambda match: _MARKS.get(match[1] or "", _GAP), part))


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
