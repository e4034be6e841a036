"""Page images: their size, whether they show anything, and how they are written.

Pillow only; numpy would double the child's start-up time.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageChops, ImageFilter

from pipeline.documents.job import Job
from pipeline.domain.document import PageFile
from pipeline.domain.errors import RejectedInput, ServiceUnavailable

__all__ = ["Sink", "fit", "is_blank"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_JPEG_QUALITY = 85
# Strips (receipts, banners) fitted by their long side would be too thin to read: the short side gets at least this.
_SHORT_SIDE_SHARE = 0.4
_MAX_OUTPUT_BYTES = 4 << 30
_THUMB_PX = 480
# Of a receipt or banner the long side may keep more, or its words would shrink to less than a speck.
_THUMB_SHORT_PX = 240
_BORDER_SHARE = 0.03
_MARK_DEPTH = 28
# What JPEG makes of one colour.
_EVEN_DEPTH = 4
_NEAR_PX = 2
_MARKS_TOGETHER = 7


def fit(width: float, height: float, *, long_side_px: int, max_pixels: int, enlarge: bool = True) -> float:
    """The scale at which a page or image is rendered.

    Args:
        width: In any unit, above 0 (points, or the pixels of an image).
        height: Likewise.
        long_side_px: What the longer side should come to.
        max_pixels: Width times height never exceeds it.
        enlarge: Whether the scale may exceed 1.

    Returns:
        Pixels per unit.
    """
    long, short = max(width, height), min(width, height)
    scale = long_side_px / long
    if short * scale < _SHORT_SIDE_SHARE * long_side_px:
        # No more pixels than a square page of the wanted side has.
        scale = min(_SHORT_SIDE_SHARE * long_side_px / short, long_side_px / math.sqrt(long * short))
        scale = max(scale, long_side_px / long)
    if not enlarge:
        scale = min(scale, 1.0)
    return min(scale, math.sqrt(max_pixels / (width * height)))


def is_blank(image: Image.Image) -> bool:
    """Tell whether an image shows nothing: an even ground, but for specks and for the shadow of the scanner's lid.

    On a dark ground a mark may be faint, so there nothing counts but one colour all over.

    It errs on the side of "something": a blank page that is taken for a full one costs a call, the reverse loses it.
    """
    gray = _thumbnail(image.convert("L"))
    # The shadow of a lid is no wider along a strip's length than across it.
    border_x = int(min(gray.width, 2 * gray.height) * _BORDER_SHARE)
    border_y = int(min(gray.height, 2 * gray.width) * _BORDER_SHARE)
    if gray.width > 2 * border_x + 8 and gray.height > 2 * border_y + 8:
        gray = gray.crop((border_x, border_y, gray.width - border_x, gray.height - border_y))
    if _is_written_on(gray):
        return False
    # The ground is what each spot looks like without thin marks on it: shading and fold shadows stay in it.
    ground = gray.filter(ImageFilter.MedianFilter(9))
    is_light = sum(ground.histogram()[:64]) < 0.5 * gray.width * gray.height
    if not is_light:
        return _is_even(image)
    return not _has_areas(ground) and not _has_strokes(ImageChops.difference(gray, ground))


def _is_even(image: Image.Image) -> bool:
    levels = image.convert("RGB").histogram()
    bands = ([level for level in range(256) if levels[start + level]] for start in (0, 256, 512))
    return all(band[-1] - band[0] <= _EVEN_DEPTH for band in bands)


def _thumbnail(gray: Image.Image) -> Image.Image:
    long, short = max(gray.size), min(gray.size)
    scale = max(_THUMB_PX / long, _THUMB_SHORT_PX / short)
    if scale >= 1:
        return gray
    size = max(1, round(gray.width * scale)), max(1, round(gray.height * scale))
    return gray.resize(size, Image.Resampling.BOX)


def _has_strokes(marks: Image.Image) -> bool:
    """One small letter is enough: several marked points together, where a speck is one or two."""
    marked = marks.point(lambda depth: 255 if depth >= _MARK_DEPTH else 0)
    together = marked.filter(ImageFilter.BoxBlur(_NEAR_PX))
    return _most(together) >= 255 * _MARKS_TOGETHER // (2 * _NEAR_PX + 1) ** 2


def _most(gray: Image.Image) -> int:
    return max(level for level, pixels in enumerate(gray.histogram()) if pixels)


def _is_written_on(gray: Image.Image) -> bool:
    """The quick answer for nearly every page: far more dark than specks or bleed-through make."""
    histogram = gray.histogram()
    total = sum(histogram)
    level = _percentile(histogram, total * 0.5)
    return level > 100 and sum(histogram[: level - 70]) > 0.004 * total


def _has_areas(ground: Image.Image) -> bool:
    """Large marks (a photo, a filled box) survive the median: the ground then has far more than one level."""
    histogram = ground.histogram()
    total = sum(histogram)
    level = _percentile(histogram, total * 0.5)
    far = sum(histogram[: max(0, level - 40)]) + sum(histogram[min(256, level + 40) :])
    # On a strip a mark is as large as on a page, though a smaller share.
    return far > 0.004 * min(total, _THUMB_PX * _THUMB_PX)


def _percentile(histogram: list[int], count: float) -> int:
    seen = 0
    for level, pixels in enumerate(histogram):
        seen += pixels
        if seen >= count:
            return level
    return 255


class Sink:
    """Writes a job's page images into its folder, and stops when they come to too much."""

    def __init__(self, job: Job) -> None:
        self._folder = job.workdir
        self._written = 0

    def jpeg(self, image: Image.Image, number: int) -> PageFile:
        """Write a page's image.

        Raises:
            RejectedInput: ``unsafe``: all images together are too large.
            ServiceUnavailable: The disk is full, of which no page is to blame.
        """
        path = self._folder / f"page-{number:05d}.jpg"
        rgb = image if image.mode in ("RGB", "L") else image.convert("RGB")
        with _room(path):
            rgb.save(path, "JPEG", quality=_JPEG_QUALITY)
        return self._note(PageFile(path, "image/jpeg", rgb.width, rgb.height))

    def png(self, image: Image.Image, number: int) -> PageFile:
        """Write an image that JPEG would blur: line art and screenshots of few colours."""
        path = self._folder / f"page-{number:05d}.png"
        with _room(path):
            image.save(path, "PNG")
        return self._note(PageFile(path, "image/png", image.width, image.height))

    def original(self, source: Path, number: int, media_type: str, size: tuple[int, int]) -> PageFile:
        """Keep an image file as it is."""
        path = self._folder / f"page-{number:05d}{source.suffix.lower()[:8]}"
        with _room(path):
            path.write_bytes(source.read_bytes())
        return self._note(PageFile(path, media_type, *size))

    def _note(self, file: PageFile) -> PageFile:
        self._written += file.path.stat().st_size
        if self._written > _MAX_OUTPUT_BYTES:
            raise RejectedInput("unsafe", f"its page images come to more than {_MAX_OUTPUT_BYTES >> 30} GB")
        return file


@contextmanager
def _room(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        remedy = "free some space, or set TMPDIR to a folder on a larger disk"
        raise ServiceUnavailable(f"no space left for page images in {str(path.parent.parent)!r}", remedy) from error
