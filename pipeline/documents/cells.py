"""Cells of a workbook that the extraction library shows as nobody reads them: times of a day, and bare formulas."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from pipeline.documents.package import Package, in_utf8, rewritten

__all__ = ["spelled_out"]

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_WORKBOOK = "xl/workbook.xml"

# Formats of times by their built-in numbers (ECMA-376, 18.8.30), and those of them that count hours past a day.
_TIMES = frozenset({18, 19, 20, 21, 45, 46, 47})
_ELAPSED = frozenset({46})
_SAID_IN_FORMAT = re.compile(r'"[^"]*"|\\.|[_*].')
_ELAPSED_PART = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_BRACKET = re.compile(r"\[[^\]]*\]")
_DAY_SECONDS = 86_400
_TYPE = re.compile(r"\st=([\"'])(\w+)\1")
_STYLE = re.compile(r"\ss=[\"'](\d{1,6})[\"']")
# A cell with a number, behind a formula or not; none of its parts runs over a tag, so that no search is long.
_VALUE_CELL = re.compile(
    r"<((?:\w+:)?)c(\s[^<>/]*+)>\s*+(?:<\1f\b[^<>]*+>(?:[^<]*+</\1f>)?+\s*+)?+<\1v>([\d.Ee-]{1,24})</\1v>\s*+</\1c>"
)
_FORMULA_CELL = re.compile(
    r"<((?:\w+:)?)c(\s[^<>/]*+)>\s*+<\1f(?:\s[^<>/]*+)?>([^<]++)</\1f>\s*+(?:<\1v\s*+/>|<\1v>\s*+</\1v>)?+\s*+</\1c>"
)


def spelled_out(data: bytes) -> bytes:
    """An XLSX whose times are written as times, and whose formulas that no program has computed as formulas.

    The library shows a time as one of 1899, hours past a day as a date in 1900, and nothing for such a formula.
    """
    with Package(data) as package:
        sheets = package.related(_WORKBOOK, "worksheet").values()
        styles = next(iter(package.related(_WORKBOOK, "styles").values()), "")
        times = _time_styles(package.xml(styles))
    if not sheets:
        return data
    parts = re.compile(rf"(?:{'|'.join(map(re.escape, sheets))})\Z")

    def spell_out(sheet: str) -> str:
        if times:
            sheet = _VALUE_CELL.sub(lambda cell: _time_cell(cell, times), sheet)
        return _FORMULA_CELL.sub(_formula_cell, sheet) if "</f>" in sheet or ":f>" in sheet else sheet

    return rewritten(data, parts, in_utf8(spell_out))


def _time_styles(styles: Element | None) -> dict[str, bool]:
    """The styles of cells that are times of a day, by their number; whether they count hours past a day."""
    if styles is None:
        return {}
    codes = {one.get("numFmtId", ""): one.get("formatCode", "") for one in styles.iter(f"{_MAIN}numFmt")}
    kinds = {str(number): number in _ELAPSED for number in _TIMES}
    for number, code in codes.items():
        plain_code = _SAID_IN_FORMAT.sub("", code).partition(";")[0]
        letters = _BRACKET.sub("", plain_code).lower()
        elapsed = _ELAPSED_PART.search(plain_code) is not None
        if elapsed or (set(letters) & set("hs") and not set(letters) & set("ydeg#?")):
            kinds[number] = elapsed
    cells = styles.find(f"{_MAIN}cellXfs")
    formats = [one.get("numFmtId", "") for one in cells] if cells is not None else []
    return {str(index): kinds[number] for index, number in enumerate(formats) if number in kinds}


def _time_cell(cell: re.Match[str], times: dict[str, bool]) -> str:
    prefix, attributes, value = cell.groups()
    style, kind = _STYLE.search(attributes), _TYPE.search(attributes)
    if style is None or style[1] not in times or (kind is not None and kind[2] != "n"):
        return cell[0]
    try:
        seconds = round(float(value) * _DAY_SECONDS)
    except (ValueError, OverflowError):
        return cell[0]
    # A day shown by its time alone is a date all the same.
    if seconds < 0 or (seconds >= _DAY_SECONDS and not times[style[1]]):
        return cell[0]
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return _text_cell(prefix, attributes, f"{hour:02}:{minute:02}" + (f":{second:02}" if second else ""))


def _formula_cell(cell: re.Match[str]) -> str:
    prefix, attributes, formula = cell.groups()
    kind = _TYPE.search(attributes)
    # Of a text that is empty, a program has written so.
    return cell[0] if kind is not None and kind[2] == "str" else _text_cell(prefix, attributes, f"={formula}")


def _text_cell(prefix: str, attributes: str, text: str) -> str:
    return f'<{prefix}c{_TYPE.sub("", attributes)} t="str"><{prefix}v>{text}</{prefix}v></{prefix}c>'
