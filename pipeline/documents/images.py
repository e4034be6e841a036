"""Image files: one page each, but for TIFF, where each frame is one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from PIL import Image, ImageChops, ImageOps, ImageSequence, UnidentifiedImageError

from pipeline.documents.job import Begun, Ended, Event, Job, Opened
from pipeline.documents.pages import image_page
from pipeline.documents.raster import Sink, fit, is_blank
from pipeline.domain.document import ParsedPage, TextFormat, TextQuality
from pipeline.domain.errors import Failure, RejectedInput
from pipeline.domain.text import safe_text

__all__ = ["flatten", "open_image", "read"]

_FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/tiff": "TIFF",
    "image/webp": "WEBP",
    "image/bmp": "BMP",
    "image/gif": "GIF",
}
# A file is decoded at up to this many times max_pixels, because a photo may be shrunk to what is allowed; past it, not.
_DECODE_FACTOR = 4
# To see the last, all are decoded.
_MOST_MOMENTS = 1_000
_PT_PER_INCH = 72.0
_USUAL_DPI = 96.0


def read(job: Job) -> Iterator[Event]:
    """Parse an image file.

    Raises:
        RejectedInput: ``corrupt``, ``too_large`` (frames) or ``unsafe`` (it would decode to far too many pixels).
    """
    with closing(open_image(job.path, job.media_type)) as image:
        # The frames of a GIF or WebP are moments, not pages.
        count = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
        if count > job.limits.max_pages:
            raise RejectedInput("too_large", f"{count} pages; limits.max_pages = {job.limits.max_pages}")
        yield Opened(count, None)
        sink = Sink(job)
        for number in range(job.first_page, count + 1):
            yield Begun(number)
            yield _page(image, number, job, sink)
        yield Ended()


def open_image(path: Path, media_type: str) -> Image.Image:
    """Open an image as the type it was found to be, without decoding it.

    Raises:
        RejectedInput: ``corrupt``.
    """
    # Our own limit on pixels is checked before anything is decoded.
    Image.MAX_IMAGE_PIXELS = None
    try:
        return Image.open(path, formats=[_FORMATS[media_type]])
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as exc:
        raise RejectedInput("corrupt", f"not a readable {_FORMATS[media_type]} image") from exc


def _page(image: Image.Image, number: int, job: Job, sink: Sink) -> ParsedPage:
    """One frame. What is wrong with one of several is that page's failure, and the others are kept."""
    try:
        fitted = _fitted_frame(image, number, job)
        if _is_animated(image) and is_blank(fitted):
            # Those that write themselves are full at their end.
            fitted = _whole(_frame(image, image.n_frames), number, job)  # type: ignore[attr-defined]
    except (RejectedInput, MemoryError) as exc:
        if not _is_one_of_several(image):
            raise
        detail = exc.detail if isinstance(exc, RejectedInput) else f"page {number} needs more memory than it may have"
        return _failed(number, "unsafe", detail)
    except Exception as exc:  # a decoder raises what it likes for a damaged frame
        if not _is_one_of_several(image):
            raise RejectedInput("corrupt", safe_text(f"the image is damaged: {exc}")) from exc
        return _failed(number, "corrupt", safe_text(f"page {number} is damaged: {exc}"))
    if is_blank(fitted):
        return image_page(number, None, blank=True)
    file = sink.png(fitted, number) if _is_line_art(fitted) else sink.jpeg(fitted, number)
    return image_page(number, file)


def _fitted_frame(image: Image.Image, number: int, job: Job) -> Image.Image:
    return _whole(image if number == 1 else _frame(image, number), number, job)


def _whole(frame: Image.Image, number: int, job: Job) -> Image.Image:
    width, height = frame.size
    if width * height > _DECODE_FACTOR * job.limits.max_pixels:
        detail = f"page {number} has {width} × {height} pixels; limits.max_pixels = {job.limits.max_pixels}"
        raise RejectedInput("unsafe", detail)
    return _fitted(frame, job)


def _is_animated(image: Image.Image) -> bool:
    return image.format != "TIFF" and 1 < getattr(image, "n_frames", 1) <= _MOST_MOMENTS


def _is_one_of_several(image: Image.Image) -> bool:
    return image.format == "TIFF" and getattr(image, "n_frames", 1) > 1


def _failed(number: int, kind: str, detail: str) -> ParsedPage:
    return ParsedPage(number, "", TextFormat.PLAIN, TextQuality.NONE, failure=Failure(kind, detail))


def _frame(image: Image.Image, number: int) -> Image.Image:
    return ImageSequence.Iterator(image)[number - 1]


def _fitted(frame: Image.Image, job: Job) -> Image.Image:
    width, height = frame.size
    scale = fit(width, height, long_side_px=job.long_side_px, max_pixels=job.limits.max_pixels, enlarge=False)
    target = max(1, round(width * scale)), max(1, round(height * scale))
    if frame.format == "JPEG":
        # The decoder itself can halve and quarter, at a fraction of the time and memory.
        frame.draft(None, target)
    with warnings.catch_warnings():
        # Odd metadata is no reason to refuse an image.
        warnings.simplefilter("ignore")
        frame.load()
        upright = ImageOps.exif_transpose(frame)
    if upright.width * upright.height > target[0] * target[1]:
        turned = (upright.width > upright.height) != (target[0] > target[1])
        upright = flatten(upright).resize(target[::-1] if turned else target, Image.Resampling.LANCZOS)
    return flatten(upright)


def flatten(image: Image.Image) -> Image.Image:
    """Any mode to ``L`` or ``RGB``; what is transparent becomes white, as on paper, or black under white words."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode in ("1", "I", "I;16", "F"):
        return _to_gray(image)
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        on_white = _laid_on("white", layer)
        if not is_blank(on_white):
            return on_white
        on_black = _laid_on("black", layer)
        # Where nothing was drawn, black alone would pass for a picture.
        return on_white if is_blank(ImageChops.invert(on_black)) else on_black
    return image.convert("RGB")


def _laid_on(ground: str, layer: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", layer.size, ground), layer).convert("RGB")


def _to_gray(image: Image.Image) -> Image.Image:
    if image.mode == "1":
        return image.convert("L")
    # 16 bits and floats: Pillow clips at 255 where it should scale.
    low, high = image.convert("F").getextrema()
    if not isinstance(low, float) or not isinstance(high, float):
        return image.convert("L")
    whites = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
    white = next((one for one in whites if high <= one), 65535.0)
    return image.convert("F").point(lambda value: value * (255.0 / white)).convert("L")


def _is_line_art(image: Image.Image) -> bool:
    """Few colours: a screenshot or drawing, which JPEG blurs and PNG packs better."""
    return image.getcolors(64) is not None
