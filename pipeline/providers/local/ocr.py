"""Reading the text of a page image with the OCR models that ship inside the ``rapidocr`` wheel, Korean with Tesseract.

Runs in a child of ``pool.ChildPool`` only: the import takes a second and the models hold some 600 MB. onnxruntime
calls home unless ``ORT_DISABLE_TELEMETRY=1`` was set before it is imported; the pool sets it in the child's
environment.
"""

from __future__ import annotations

import io
import statistics
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import rapidocr
from PIL import Image

from pipeline.providers.local.gutters import part_at_gutters
from pipeline.providers.local.hangul import MIN_SCORE, HangulReader
from pipeline.providers.local.reading import Line

__all__ = ["OcrEngine", "UnreadableImage"]

Pixels = npt.NDArray[np.uint8]
Boxes = npt.NDArray[np.float32]

_MAX_PIXELS = 50_000_000
_MAX_SIDE_PX = 2200
_PROBES = 5
# A box is upright or sideways only when one side is clearly the longer; a single letter says nothing.
_CLEAR_RATIO = 1.5
# Lines that read this well are not upside down, and need not be compared.
_CERTAIN = 0.93
_CERTAIN_WORTH = 12.0


class UnreadableImage(ValueError):
    """The bytes are no image that can be read, or are too large a one."""


class OcrEngine:
    """The detection and recognition models, loaded once a process.

    Args:
        threads: Processors that one page may use.
    """

    def __init__(self, threads: int) -> None:
        cv2.setNumThreads(threads)
        models = Path(rapidocr.__file__).parent / "models"
        self._ocr: Any = rapidocr.RapidOCR(
            params={
                "Global.log_level": "error",
                "EngineConfig.onnxruntime.intra_op_num_threads": threads,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                # Both keep the peak near 650 MB; together the defaults take 1.1 GB for a little speed.
                "EngineConfig.onnxruntime.enable_cpu_mem_arena": False,
                "Rec.rec_batch_num": 1,
                # Named, they are read from the wheel; unnamed, a missing or changed file would be downloaded.
                "Det.model_path": str(models / "PP-OCRv6_det_small.onnx"),
                "Rec.model_path": str(models / "PP-OCRv6_rec_small.onnx"),
            }
        )
        self._hangul = HangulReader()

    def readable(self) -> frozenset[str]:
        """Every character that the recognition model in ``rapidocr`` knows."""
        self._ocr._load_rec_model()
        return frozenset(self._ocr.text_rec.postprocess_op.character)

    def read(self, image: bytes) -> tuple[list[Line], int, int]:
        """The page's lines in no particular order, with the width and height (px) of the page set upright.

        Raises:
            UnreadableImage: ``image`` is no image, or has more than 50 million pixels.
        """
        pixels = _decode(image)
        boxes = self._detect(pixels)
        if boxes is None:
            return [], pixels.shape[1], pixels.shape[0]
        pixels, boxes = self._upright(pixels, boxes)
        height, width = pixels.shape[:2]
        if boxes is None:
            return [], width, height
        boxes = part_at_gutters(pixels, boxes)
        read = self._recognise(pixels, boxes)
        lines = [
            Line(tuple((float(x), float(y)) for x, y in box), text, score)
            for box, (text, score) in zip(boxes, read, strict=True)
            if score >= MIN_SCORE and text.strip()
        ]
        return lines, width, height

    def _detect(self, pixels: Pixels) -> Boxes | None:
        boxes = self._ocr._load_det_model()(pixels).boxes
        return None if boxes is None or len(boxes) == 0 else np.asarray(boxes, dtype=np.float32)

    def _recognise(self, pixels: Pixels, boxes: Boxes) -> list[tuple[str, float]]:
        return self._reads(self._ocr.crop_text_regions(pixels, boxes))

    def _upright(self, pixels: Pixels, boxes: Boxes) -> tuple[Pixels, Boxes | None]:
        """Turn a page that lies on its side or stands on its head.

        The detector finds lines in any direction and the recogniser reads some of them, but in the wrong order. Most
        boxes taller than wide mean sideways; which way up is what the recogniser scores better.
        """
        tall, wide = _tall_and_wide(boxes)
        if tall > wide:
            pixels = np.ascontiguousarray(np.rot90(pixels))
            turned = self._detect(pixels)
            if turned is None:
                return pixels, None
            boxes = turned
        probes = _longest(boxes)
        crops = self._ocr.crop_text_regions(pixels, probes)
        upright = self._reads(crops)
        if statistics.fmean(score for _, score in upright) >= _CERTAIN and _worth(upright) >= _CERTAIN_WORTH:
            return pixels, boxes
        if _worth(self._reads([np.ascontiguousarray(np.rot90(crop, 2)) for crop in crops])) <= _worth(upright):
            return pixels, boxes
        height, width = pixels.shape[:2]
        flipped = np.array([width, height], dtype=np.float32) - boxes
        # The corners of a box start at its top left, which is the old bottom right.
        return np.ascontiguousarray(np.rot90(pixels, 2)), flipped[:, [2, 3, 0, 1], :]

    def _reads(self, crops: list[Any]) -> list[tuple[str, float]]:
        result = self._ocr.recognize_txt(crops)
        return self._hangul.mend(crops, list(zip(result.txts, result.scores, strict=True)))


def _worth(read: list[tuple[str, float]]) -> float:
    """How much was read, how surely: an upside-down line often comes out as few but sure letters."""
    return statistics.fmean(score * min(len(text.strip()), 40) for text, score in read)


def _decode(image: bytes) -> Pixels:
    """The image as BGR, at most ``_MAX_SIDE_PX`` on its longer side."""
    try:
        with Image.open(io.BytesIO(image)) as opened:
            page = _on_white(opened)
    except (OSError, SyntaxError, Image.DecompressionBombError) as broken:
        raise UnreadableImage(f"the image can't be decoded: {type(broken).__name__}") from broken
    page.thumbnail((_MAX_SIDE_PX, _MAX_SIDE_PX))
    return np.ascontiguousarray(np.asarray(page, dtype=np.uint8)[:, :, ::-1])


def _on_white(image: Image.Image) -> Image.Image:
    width, height = image.size
    if width * height > _MAX_PIXELS:
        raise UnreadableImage(f"the image has {width} x {height} pixels, more than {_MAX_PIXELS}")
    image.draft("RGB", (_MAX_SIDE_PX, _MAX_SIDE_PX))
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    page = Image.new("RGB", layer.size, "white")
    page.paste(layer, mask=layer.getchannel("A"))
    return page


def _sides(boxes: Boxes) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Widths and heights of the boxes."""
    span = boxes.max(axis=1) - boxes.min(axis=1)
    return span[:, 0], span[:, 1]


def _tall_and_wide(boxes: Boxes) -> tuple[int, int]:
    width, height = _sides(boxes)
    return int((height > _CLEAR_RATIO * width).sum()), int((width > _CLEAR_RATIO * height).sum())


def _longest(boxes: Boxes) -> Boxes:
    """The boxes that say most about direction, the longest, but no longer than about a line of forty letters."""
    width, height = _sides(boxes)
    ratio = np.minimum(width / np.maximum(height, 1.0), 25.0)
    return boxes[np.argsort(-ratio, kind="stable")[:_PROBES]]
