"""Reading lines of Korean, whose letters the OCR models of the ``rapidocr`` wheel do not know.

Tesseract reads them, from the ``tesserocr`` wheel with the model file that lies beside this module. It is asked where
lines were hardly read alone, and heard where it is sure of Korean: what those models do know they read better.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

__all__ = ["MIN_SCORE", "HangulReader"]

Pixels = npt.NDArray[np.uint8]

MIN_SCORE = 0.5
"""A line whose score is less was not read."""
# Measured over the corpus: lines of Korean are mostly read as nothing, or with less than this, and others with more.
_UNSURE = 0.93
_PROBES = 5
# On Korean lines Tesseract is mostly sure by 74 to 97, on those of other scripts by less than 50.
_SURE = 65
# On a page that has Korean, of lines that nobody else has read.
_LIKELY = 35
_MIN_SHARE = 0.3
_SYLLABLE = re.compile("[가-힣]")
_BORDER_PX = 10
# What its model was trained on; taller lines are read worse (0.92 of the characters at 60 px, where 36 gives 0.975).
_HEIGHT_PX = 36
_DARK = 140


class HangulReader:
    """Goes over what another recogniser has read. It loads its model at the first line that is unsure."""

    def mend(self, crops: Sequence[Pixels], read: list[tuple[str, float]]) -> list[tuple[str, float]]:
        """What was read of each line, with its score, or what the line says in Korean, where it is Korean.

        Args:
            crops: The lines' pictures (BGR), as ``read`` was read from them.
        """
        unsure = [i for i, (_, score) in enumerate(read) if score < _UNSURE]
        # The longest say most. Where one of them is Korean, a line that was read surely may be Korean, too.
        longest = sorted(unsure, key=lambda i: crops[i].shape[0] / max(1, crops[i].shape[1]))[:_PROBES]
        probed: dict[int, tuple[str, int]] = {}
        for i in longest:
            probed[i] = self._read(crops[i])
            if _is_korean(*probed[i], _SURE):
                break
        else:
            return read
        mended = []
        for i, known in enumerate(read):
            text, confidence = probed[i] if i in probed else self._read(crops[i])
            is_korean = _is_korean(text, confidence, _SURE if known[1] >= MIN_SCORE else _LIKELY)
            mended.append((text, _score(confidence)) if is_korean else known)
        return mended

    @cached_property
    def _tesseract(self) -> Any:
        """None where there is no wheel of it."""
        try:
            import tesserocr
        except ImportError:
            return None
        return tesserocr.PyTessBaseAPI(
            path=str(Path(__file__).parent / "tessdata"),
            lang="kor",
            psm=tesserocr.PSM.SINGLE_LINE,
            oem=tesserocr.OEM.LSTM_ONLY,
        )

    def _read(self, crop: Pixels) -> tuple[str, int]:
        """A line as Tesseract reads it, and how sure it is, of 100."""
        if self._tesseract is None:
            return "", 0
        self._tesseract.SetImage(_dark_on_light(crop))
        return self._tesseract.GetUTF8Text().strip(), self._tesseract.MeanTextConf()


def _is_korean(text: str, confidence: int, least: int) -> bool:
    letters = len("".join(text.split()))
    return confidence >= least and letters > 0 and len(_SYLLABLE.findall(text)) >= _MIN_SHARE * letters


def _score(confidence: int) -> float:
    """Tesseract's confidence on the other recogniser's scale, whose least is for what is just good enough."""
    return MIN_SCORE + (1 - MIN_SCORE) * (confidence - _LIKELY) / (100 - _LIKELY)


def _dark_on_light(crop: Pixels) -> Image.Image:
    """A line as Tesseract likes it: grey, dark letters on light paper, a border around, of the height that it knows."""
    grey = Image.fromarray(crop[:, :, ::-1]).convert("L")
    paper = int(np.median(np.asarray(grey)))
    if paper < _DARK:
        grey, paper = ImageOps.invert(grey), 255 - paper
    framed = ImageOps.expand(grey, _BORDER_PX, paper)
    width = max(1, round(framed.width * _HEIGHT_PX / framed.height))
    return framed.resize((width, _HEIGHT_PX), Image.Resampling.LANCZOS)
