"""The pictures inside a document: found by what its text calls them, and written as pages of their own."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from pipeline.documents.job import Job
from pipeline.documents.package import Package
from pipeline.documents.raster import Sink, fit, is_blank
from pipeline.domain.document import PageFile

__all__ = ["REFERENCE", "Pictures"]

# "\!" before "[" is how slides come: their images are escaped as if they were text.
# A description ends where the next begins, and an address has few brackets: a text may begin many and end none.
REFERENCE = re.compile(r"\\?!\[((?:[^\]\\!]|\\[^!]|\\?!(?!\[))*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*){0,8})\)")
_NUMBERED = re.compile(r"^image_(\d{1,6})\.\w+$")
_MIN_PX = 48
_MOST = 300


@dataclass(slots=True)
class Pictures:
    """The embedded pictures worth a page of their own: not icons, and each once.

    Attributes:
        found: What the extraction library took out: ``image_index`` and ``data`` each.
        package: The file itself where it is a package, whose parts a reference may name.
    """

    job: Job
    found: list[dict[str, Any]]
    package: Package | None
    sink: Sink
    seen: set[bytes] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    taken: int = 0

    def at(self, target: str) -> bytes | None:
        """The bytes of the picture that a Markdown reference names.

        None when it is not worth a page, lies outside, or was asked for before: a logo on every slide is read once.
        """
        if target in self.asked:
            return None
        if not target.startswith("data:"):
            self.asked.add(target)
        data = self._at(target)
        return data if data and _is_worth(data, self.job) else None

    def _at(self, target: str) -> bytes | None:
        if target.startswith("data:"):
            return _inline(target)
        if numbered := _NUMBERED.match(target):
            index = int(numbered.group(1))
            return next((image.get("data") for image in self.found if image.get("image_index") == index), None)
        return self.package.named(target) if self.package is not None else None

    def page_file(self, data: bytes, number: int) -> PageFile | None:
        """Write a picture for page ``number``; None when it is unreadable, shows nothing, or was there before."""
        digest = hashlib.sha256(data).digest()
        if digest in self.seen or self.taken >= _MOST:
            return None
        self.seen.add(digest)
        image = _decoded(data, self.job)
        if image is None or min(image.size) < _MIN_PX or is_blank(image):
            return None
        self.taken += 1
        return self.sink.jpeg(image, number)


def _is_worth(data: bytes, job: Job) -> bool:
    """Tell from an image's header alone whether the text must be cut for it."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
    except Exception:  # whatever an image of a hostile file makes the decoder raise: it is no image
        return False
    return min(width, height) >= _MIN_PX and width * height <= job.limits.max_pixels


def _decoded(data: bytes, job: Job) -> Image.Image | None:
    from pipeline.documents.images import flatten

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > job.limits.max_pixels:
                return None
            image.load()
            flat = flatten(image)
    except MemoryError:
        raise
    except Exception:  # likewise
        return None
    most = job.limits.max_pixels
    scale = fit(flat.width, flat.height, long_side_px=job.long_side_px, max_pixels=most, enlarge=False)
    return flat.resize((max(1, round(flat.width * scale)), max(1, round(flat.height * scale)))) if scale < 1 else flat


def _inline(target: str) -> bytes | None:
    head, _, body = target.partition(",")
    if not head.endswith(";base64"):
        return None
    try:
        return base64.b64decode(body, validate=False)
    except (binascii.Error, ValueError):
        return None
