"""What encoding is meant by the name that a document, a mail or a header gives it."""

from __future__ import annotations

import codecs

__all__ = ["charset"]

# Python's, and no document's: ways to write domain names and string literals. IDNA takes minutes for a large file.
_NO_CHARSETS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
# As browsers and mailers do (WHATWG Encoding, 4.2): these labels mean the superset that is really in use, or are names
# that Python doesn't know.
_MEANT = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "windows-874": "cp874",
    "dos-874": "cp874",
    "dos-866": "cp866",
    "iso-8859-6-e": "iso8859-6",
    "iso-8859-6-i": "iso8859-6",
    "iso-8859-8-e": "iso8859-8",
    "iso-8859-8-i": "iso8859-8",
    "logical": "iso8859-8",
    "visual": "iso8859-8",
    "macintosh": "mac-roman",
    "x-mac-roman": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic",
    "x-mac-ukrainian": "mac-cyrillic",
    "x-cp1250": "cp1250",
    "x-cp1251": "cp1251",
    "x-cp1252": "cp1252",
    "shift_jis": "cp932",
    "x-sjis": "cp932",
    "x-euc-jp": "euc_jp",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "gb_2312-80": "gb18030",
    "big5": "big5hkscs",
    "x-x-big5": "big5hkscs",
    "euc_kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "korean": "cp949",
    "unicode-1-1-utf-8": "utf-8",
    "x-unicode20utf8": "utf-8",
}


def charset(label: str) -> str | None:
    """Python's name of the encoding that a document or a mail names; None for what is no encoding of documents."""
    label = label.strip().lower()
    try:
        name = _MEANT.get(label) or codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    return None if name in _NO_CHARSETS else _MEANT.get(name, name)
