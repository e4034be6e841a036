"""Which encoding a text file is in, decided over the whole file.

The order: a byte order mark, what the file declares, UTF-16 or UTF-32 by its shape, ISO-2022 and HZ by their escapes,
UTF-8 (a few bad bytes allowed), then a guess over the whole file (one late byte may be the only one that is not ASCII):
Western European text by its shape, Japanese by its kana, the rest by chardet over the legacy
encodings that still occur.
"""

from __future__ import annotations

import codecs
import re

from pipeline.documents.everyday import everyday_share
from pipeline.documents.labels import charset
from pipeline.documents.wide import wide_encoding

__all__ = ["decode", "decode_as", "looks_like_text", "start_as_text"]

_BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # Before UTF-16: the little-endian UTF-32 mark starts with UTF-16's.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = bytes(set(range(0x20)) - set(b"\t\n\r\x0b\x0c\x1b\x1a")) + b"\x7f"
# The white of a picture; letters that lie there (ÿ, я) are in no word so often.
_FILLING = b"\xff" * 16
_OVERSTRUCK = re.compile(rb"[^\n\x08]\x08")
_LEAST_TYPED = 8
_MAX_CONTROLS = 0.01
# Nearly any bytes can be read in a legacy encoding, so fewer are forgiven.
_MAX_LEGACY_CONTROLS = 0.002
_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9._:-]{2,40})""", re.IGNORECASE)
_DECLARED_WITHIN = 4096
_TO_JAPANESE = re.compile(rb"\x1b(?:\$[@B]|\(I)")
_TO_KOREAN = b"\x1b$)C"
_IN_HZ = re.compile(rb"~\{(?:[!-w][!-~]){1,4096}~\}")
_JIS_ESCAPE = re.compile(rb"\x1b(\$[@B]|\([BJ])")
_TWO_BYTES = frozenset({b"$@", b"$B"})
_PAIRS = re.compile(rb"(?:[!-~]{2})*")
_GUESS_BYTES = 262_144
_NEAR_BYTES = 64
# Possessive: it is searched in whole files.
_NEAR_ABOVE_ASCII = re.compile(rb"[\x80-\xff]++(?:[\x00-\x7f]{1,128}+[\x80-\xff]++)*+")
# Those that text files still are in. No EBCDIC, and of the others none that differ in a sign or two.
_GUESSED = (
    *("cp932", "euc-jp", "gb18030", "big5hkscs", "cp949", "johab", "cp874"),
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "koi8-r", "koi8-u"),
    *("iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-13", "iso8859-15"),
    *("cp437", "cp737", "cp850", "cp852", "cp857", "cp862", "cp866", "mac-roman", "mac-cyrillic"),
)
# For a few words: between equals, Korean syllables say most, and EUC-JP without kana least.
_LIKELIEST = (
    *("cp949", "cp932", "gb18030", "big5hkscs", "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256"),
    *("koi8_r", "euc_jp"),
)
# Below it the detector has seen a few words, or none of a language.
_LEAST_SURE = 0.1
_LEAST_EVERYDAY = 0.5
_FALLBACK = "cp1252"
# Bad bytes for each good character above ASCII, with which a text still is UTF-8.
_MAX_BAD = 0.5
_WESTERN_LETTERS = frozenset("àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿßœÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝŸŒšžŠŽ")
_WESTERN_SIGNS = frozenset("€‚„…†‡‰‹‘’“”•–—™›\xa0¡¢£¥§©ª«®°±²³´µ¶·¹º»¼½¾¿×÷")
# Czech, Slovak and Slovene in cp1250, as they look in cp1252; Hungarian, likewise.
_NOT_WESTERN = (
    (frozenset("šžŠŽ"), frozenset("øìïòùØÌ")),
    (frozenset("õÕ"), frozenset("ûÛ")),
)
_SIGN_IN_WORD = re.compile("[^\\W\\d_][¡¢£¤¥¦§¨ª¬±³¶¸¹º»¼½¾¿«‚„†‡‰‹›][^\\W\\d_]")
_CAPITAL_IN_WORD = re.compile("[a-zß-öø-ÿœšž][À-ÖØ-ÞŒŠŽŸ]")
_ABOVE_ASCII = re.compile("[^\x00-\x7f]+")
_RUN_ABOVE_ASCII = re.compile("[^\x00-\x7f]{3,}")


def looks_like_text(data: bytes) -> bool:
    """Tell text in any usual encoding from binary data, by the controls that text doesn't hold.

    A few are damage or typewriting (a letter, a backspace, the letter again), which who reads the text drops; every
    tenth byte of binary data is one.
    """
    if any(data.startswith(mark) for mark, _ in _BOMS) or wide_encoding(data):
        return True
    if _FILLING in data:
        return False
    if _TO_KOREAN in data:
        # Its two others switch the character set there.
        data = data.translate(None, b"\x0e\x0f")
    typed = _OVERSTRUCK.sub(b"", data)
    clean = typed.translate(None, _CONTROLS)
    controls = len(typed) - len(clean)
    if len(typed) < _LEAST_TYPED:
        return controls == 0
    few = 1 + _MAX_CONTROLS * len(typed) if _is_utf8(clean) else _MAX_LEGACY_CONTROLS * len(typed)
    return controls <= few


def _is_utf8(head: bytes) -> bool:
    try:
        # Its end may be within a character.
        codecs.utf_8_decode(head)
    except UnicodeError:
        return False
    return True


def start_as_text(head: bytes) -> str:
    """Decode a file's first bytes well enough to look at its markup."""
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return head.decode(encoding, "ignore")
    return head.decode(wide_encoding(head) or "latin-1", "ignore")


def decode(data: bytes, *, declares: bool = False) -> str:
    """Decode a whole text file.

    Args:
        data: The file.
        declares: The format can say its encoding in itself (HTML, XML), and is believed if that decodes.

    Returns:
        The text; bytes that no encoding explains become U+FFFD.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if not data:
        return ""
    candidates = [_declared(data)] if declares else []
    candidates += [wide_encoding(data), _by_escapes(data), "utf-8"]
    for candidate in candidates:
        if candidate is not None and (text := decode_as(data, candidate)) is not None:
            return text
    text = _damaged_utf8(data)
    return text if text is not None else data.decode(_guess(data), "replace")


def _damaged_utf8(data: bytes) -> str | None:
    """UTF-8 that was cut off or holds a few bad bytes: hardly any other text forms even one sequence of UTF-8."""
    # Without a last character that was cut, which is no sign against it.
    text, _ = codecs.utf_8_decode(data, "replace")
    lost = text.count("\ufffd")
    bad = lost - data.count("\ufffd".encode())
    good = sum(map(len, _ABOVE_ASCII.findall(text))) - lost
    return data.decode("utf-8", "replace") if good > 0 and bad <= _MAX_BAD * good else None


def _declared(data: bytes) -> str | None:
    match = _DECLARED.search(data[:_DECLARED_WITHIN])
    name = charset(match.group(1).decode("ascii")) if match is not None else None
    if name is None or name == "utf-7":
        return None
    # What could be read byte for byte is in neither of these.
    return "utf-8" if name.startswith(("utf-16", "utf-32")) else name


def decode_as(data: bytes, encoding: str) -> str | None:
    """The text if it really is in an encoding, by Python's name."""
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):
        return _windows_jis(data) if encoding.startswith("iso2022_jp") else None


def _windows_jis(data: bytes) -> str | None:
    """ISO-2022-JP with what Windows added to it (髙, ①), which Python's codec doesn't know: read as Shift JIS."""
    first, *rest = _JIS_ESCAPE.split(data)
    pieces = [first]
    for escape, piece in zip(rest[::2], rest[1::2], strict=True):
        if escape not in _TWO_BYTES:
            pieces.append(piece)
        elif _PAIRS.fullmatch(piece):
            pieces.append(_shift_jis(piece))
        else:
            return None
    try:
        return b"".join(pieces).decode("cp932")
    except UnicodeError:
        return None


def _shift_jis(pairs: bytes) -> bytes:
    coded: list[int] = []
    for row, cell in zip(pairs[::2], pairs[1::2], strict=True):
        coded.append((row - 0x21) // 2 + (0x81 if row < 0x5F else 0xC1))
        coded.append(cell + 0x7E if row % 2 == 0 else cell + 0x1F + (cell >= 0x60))
    return bytes(coded)


def _by_escapes(data: bytes) -> str | None:
    """Japanese, Korean or Chinese in seven bits: ASCII but for what switches the character set."""
    if not data.isascii():
        return None
    if _TO_JAPANESE.search(data):
        return "iso2022_jp_ext"
    if _TO_KOREAN in data:
        return "iso2022_kr"
    if _IN_HZ.search(data) and (text := decode_as(data, "hz")) is not None:
        return "hz" if everyday_share(text, "gb18030") > _LEAST_EVERYDAY else None
    return None


def _guess(data: bytes) -> str:
    from chardet import detect

    sample = _around_non_ascii(data)
    if _is_western(sample):
        return "cp1252"
    if _is_japanese_euc(sample):
        return "euc_jp"
    found = detect(
        sample,
        include_encodings=_GUESSED,
        compat_names=False,
        prefer_superset=False,
        max_bytes=len(sample),
        no_match_encoding=_FALLBACK,
    )
    name = codecs.lookup(found["encoding"] or _FALLBACK).name.replace("-", "_")
    return name if found["confidence"] >= _LEAST_SURE else _most_everyday(sample, name)


def _most_everyday(sample: bytes, detected: str) -> str:
    """Decide for a few words in which no language shows."""
    if everyday_share(sample.decode(detected, "replace"), detected) > _LEAST_EVERYDAY:
        return detected
    texts = {encoding: text for encoding in _LIKELIEST if (text := decode_as(sample, encoding)) is not None}
    shares = {encoding: everyday_share(text, encoding) for encoding, text in texts.items()}
    most = max(shares, key=shares.__getitem__, default=detected)
    return most if shares.get(most, 0) > _LEAST_EVERYDAY else detected


def _is_western(sample: bytes) -> bool:
    """Text whose few letters above ASCII stand singly in ASCII words, each one of Western Europe's."""
    text = decode_as(sample, "cp1252")
    if text is None or _SIGN_IN_WORD.search(text) or _CAPITAL_IN_WORD.search(text):
        return False
    used = set(text)
    if any(all(used & letters for letters in together) for together in _NOT_WESTERN):
        return False
    above = [char for char in text if char > "\x7f"]
    letters = sum(char in _WESTERN_LETTERS for char in above)
    signs = sum(char in _WESTERN_SIGNS for char in above)
    in_runs = sum(len(run) for run in _RUN_ABOVE_ASCII.findall(text))
    return letters + signs == len(above) and in_runs <= 0.2 * len(above)


def _is_japanese_euc(sample: bytes) -> bool:
    """Kana, which every Japanese text is full of, are 0xA4xx and 0xA5xx in EUC-JP; in Korean those are rare signs."""
    text = decode_as(sample, "euc_jp")
    if text is None:
        return False
    above = [char for char in text if char > "\x7f"]
    return sum("\u3041" <= char <= "\u30ff" for char in above) > 0.2 * len(above)


def _around_non_ascii(data: bytes) -> bytes:
    """What stands above ASCII, wherever it is, with what is near it; up to 256 KB.

    Only these bytes tell encodings apart; among thousands of ASCII lines the detector would not see them.
    """
    pieces: list[bytes] = []
    size = 0
    for near in _NEAR_ABOVE_ASCII.finditer(data):
        piece = data[max(near.start() - _NEAR_BYTES, 0) : near.end() + _NEAR_BYTES]
        pieces.append(piece)
        size += len(piece)
        if size >= _GUESS_BYTES:
            break
    sample = b"\n".join(pieces)
    # Cut after a line: anywhere else may be in the middle of a character.
    return sample if len(sample) <= _GUESS_BYTES else sample[: sample.rfind(b"\n", 1, _GUESS_BYTES) + 1 or _GUESS_BYTES]
