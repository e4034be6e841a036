"""How much of a text is what people write every day, if its bytes are read in one encoding or another.

For a few words in a legacy encoding: they decode in many of them and are too short for statistics of a language. Read
wrongly they become rare ideographs, signs, or words with capitals inside.
"""

from __future__ import annotations

import re

__all__ = ["everyday_share"]

# The first bytes of the ideographs that each standard puts first because they are used most.
_COMMON_FIRST_BYTES = {
    "cp932": range(0x88, 0x99),
    "euc_jp": range(0xB0, 0xD0),
    "gb18030": range(0xB0, 0xD8),
    "big5hkscs": range(0xA4, 0xC7),
}
_FIRST_OF_SECOND_BYTE = 0xA1
_KANA = range(0x3041, 0x30FF)
_HALF_WIDTH_KANA = range(0xFF61, 0xFFA0)
# Any byte of a large range is one: where letters of another script are as likely, they are what is meant.
_HALF_WIDTH_WEIGHT = 0.9
# About two in three syllables of a Korean text; of those that other text turns into, one in twenty-five.
_SYLLABLES = frozenset(
    "이다는의에가을를은한고하도지로사인기대나자어시해서그아리일수정과부상것주전들만공제원여장보성게구스있회었라으적관조동오국"
    "세면였무할비없위우방당개경산중연계용생학신물름니입문운"
)
_LETTERS = {
    "cp874": re.compile("[\u0e01-\u0e3a\u0e40-\u0e4e]+"),
    "cp1250": re.compile("[a-záâăäąćčçďéęëěíîĺľłńňóôőöŕřśšşťţúůűüýźžż]+", re.IGNORECASE),
    "cp1251": re.compile("[а-яёєіїґў]+", re.IGNORECASE),
    "cp1252": re.compile("[a-zàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿßœšž]+", re.IGNORECASE),
    "cp1253": re.compile("[α-ωάέήίόύώϊϋΐΰ]+", re.IGNORECASE),
    "cp1254": re.compile("[a-zçğıöşüâîûİ]+", re.IGNORECASE),
    "cp1255": re.compile("[א-ת]+"),
    "cp1256": re.compile("[ء-يپچژگ]+"),
    "cp1257": re.compile("[a-zāäåąčćęēėģįīķļłńņóōõöšśųūüźžż]+", re.IGNORECASE),
    "koi8_r": re.compile("[а-яё]+", re.IGNORECASE),
}
# What else the same languages are written in.
_WRITES_AS = {
    **dict.fromkeys(("iso8859_2", "cp852"), "cp1250"),
    **dict.fromkeys(("iso8859_5", "koi8_u", "cp866", "mac_cyrillic"), "cp1251"),
    **dict.fromkeys(("iso8859_15", "cp437", "cp850", "mac_roman"), "cp1252"),
    **dict.fromkeys(("iso8859_7", "cp737"), "cp1253"),
    **dict.fromkeys(("cp857",), "cp1254"),
    **dict.fromkeys(("iso8859_8", "cp862"), "cp1255"),
    **dict.fromkeys(("iso8859_6",), "cp1256"),
    **dict.fromkeys(("iso8859_13",), "cp1257"),
}
_VOWELS = frozenset("аеёиоуыэюяєіїαάεέηήιίοόυύωώ")
_NEEDS_VOWELS = frozenset({"cp1251", "koi8_r", "cp1253"})
_LEAST_VOWELS = 0.25
_GREEK_ACCENTED = frozenset("άέήίόύώΐΰΆΈΉΊΌΎΏ")
_LONG_WORD = 3
_LATIN = frozenset({"cp1250", "cp1252", "cp1254", "cp1257"})
_MOST_ABOVE_ASCII = 0.5
_WORD = re.compile(r"[^\W\d_]+")


def everyday_share(text: str, encoding: str) -> float:
    """The share of the characters above ASCII that are everyday ones, 0 to 1.

    Args:
        text: Decoded with ``encoding``.
        encoding: One of those that are guessed among, by Python's name.
    """
    above = [char for char in text if char > "\x7f"]
    if not above:
        return 0.0
    encoding = _WRITES_AS.get(encoding, encoding)
    if encoding == "cp949":
        return min(1.0, 2 * sum(char in _SYLLABLES for char in above) / len(above))
    if encoding in _COMMON_FIRST_BYTES:
        half_width = sum(ord(char) in _HALF_WIDTH_KANA for char in above) if encoding == "cp932" else 0
        common = sum(_is_common(char, encoding) for char in above)
        return (common + _HALF_WIDTH_WEIGHT * half_width) / len(above)
    words: list[str] = [word for word in _WORD.findall(text) if not word.isascii() and _is_spelled(word, encoding)]
    return sum(char > "\x7f" for word in words for char in word) / len(above)


def _is_common(char: str, encoding: str) -> bool:
    if encoding in ("cp932", "euc_jp") and ord(char) in _KANA:
        return True
    coded = char.encode(encoding)
    if len(coded) != 2 or coded[0] not in _COMMON_FIRST_BYTES[encoding]:
        return False
    # Below it are the ideographs that GBK added to GB 2312.
    return encoding != "gb18030" or coded[1] >= _FIRST_OF_SECOND_BYTE


def _is_spelled(word: str, encoding: str) -> bool:
    """Letters of its script, no capital after a small one, vowels where it writes them; Latin ones among ASCII."""
    letters = _LETTERS.get(encoding)
    if letters is None or not letters.fullmatch(word):
        return False
    if not (word.isupper() or word[1:] == word[1:].lower()):
        return False
    if encoding in _LATIN:
        return sum(char > "\x7f" for char in word) <= _MOST_ABOVE_ASCII * len(word)
    if encoding in _NEEDS_VOWELS and len(word) >= _LONG_WORD:
        return _has_vowels(word, encoding)
    return True


def _has_vowels(word: str, encoding: str) -> bool:
    """Hebrew read as Greek or Russian has hardly any, and no accent, which every Greek word has in small letters."""
    vowels = sum(char in _VOWELS for char in word.lower())
    accented = encoding != "cp1253" or word.isupper() or not _GREEK_ACCENTED.isdisjoint(word)
    return accented and vowels >= _LEAST_VOWELS * len(word)
