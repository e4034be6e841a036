"""Whether a PDF page's own text may be believed."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

from pipeline.documents.figures import Drawn
from pipeline.documents.textlayer import Layer
from pipeline.domain.document import TextQuality

__all__ = ["judge"]

_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")
# Begins with the sign itself, for which a text is searched faster than for the letters around it.
_LETTER_IN_CODE = re.compile(r"[!-@\[-`{-~](?<=[A-Za-z].)(?=[A-Za-z])")
_FEW_CHARS = 120
_FULL_PAGE = 0.7
_LOOKED_AT = 4000
_FEW_PAIRS = 40
# In honest text of two scripts hardly any word mixes them.
_JUMBLED = 0.25


def judge(layer: Layer, drawn: Drawn) -> TextQuality:
    """Say whether a page's own text may be believed.

    Args:
        layer: What the text layer says.
        drawn: What else is drawn on the page.
    """
    if layer.chars == 0:
        return TextQuality.NONE
    if _is_unseen(layer, drawn) or layer.unmapped > 0.5 or _is_garbled(layer.text) or _is_jumbled(layer.text):
        return TextQuality.POOR
    # A stamp or a page number on a scan is not the page's text.
    if layer.unmapped > 0.1 or (drawn.image_share > _FULL_PAGE and layer.chars < _FEW_CHARS):
        return TextQuality.PARTIAL
    return TextQuality.GOOD


def _is_garbled(text: str) -> bool:
    """A font whose codes were taken for characters gives words without vowels, or with signs inside them."""
    letters = "".join(_LATIN_WORD.findall(text)).lower()
    solid = len("".join(text.split()))
    if len(letters) < 80 or len(letters) < 0.3 * solid:
        return False
    vowels = sum(map(letters.count, "aeiouy")) / len(letters)
    inside = len(_LETTER_IN_CODE.findall(text)) / len(letters)
    return not 0.2 <= vowels <= 0.65 or inside > 0.12


def _is_unseen(layer: Layer, drawn: Drawn) -> bool:
    """Text that nobody sees was made by a program that read the picture, or is not meant to be read."""
    return layer.invisible > 0.5 or drawn.hidden_text > 0.5 or (layer.white > 0.5 and not drawn.anything)


def _is_jumbled(text: str) -> bool:
    """Words whose letters are of several scripts: a font whose codes were taken for those of any language."""
    if text.isascii():
        return False
    letters = [_script(ch) if ch.isalpha() else "" for ch in text[:_LOOKED_AT]]
    pairs = [(one, other) for one, other in pairwise(letters) if one and other]
    return len(pairs) >= _FEW_PAIRS and sum(one != other for one, other in pairs) > _JUMBLED * len(pairs)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    """``LATIN``, ``GREEK``, …: the first word of the letter's name; what East Asia writes side by side is one."""
    name = unicodedata.name(letter, "?").split(" ", 1)[0]
    return "CJK" if name.startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC")) else name
