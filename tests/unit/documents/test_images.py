"""Image files: upright, fitted, never decoded past the limit; frames of a TIFF are pages."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image, ImageDraw, ImageFont

from pipeline.documents.images import read
from pipeline.documents.raster import fit, is_blank
from pipeline.domain.document import Limits, ParsedPage
from pipeline.domain.errors import RejectedInput
from tests.unit.documents.conftest import MakeJob


def drawn(size: tuple[int, int] = (600, 300), mode: str = "RGB", words: str = "TIDE GATE") -> Image.Image:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((20, 20), words, font=ImageFont.load_default(40), fill="black")
    return image.convert(mode)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def darkest(image: Image.Image) -> int:
    return next(level for level, pixels in enumerate(image.convert("L").histogram()) if pixels)


def pages(make_job: MakeJob, content: bytes, media_type: str, **changes: object) -> list[ParsedPage]:
    return [event for event in read(make_job(content, media_type, **changes)) if isinstance(event, ParsedPage)]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF"])
def test_every_kind_is_a_page_with_its_image(make_job: MakeJob, kind: str) -> None:
    (page,) = pages(make_job, saved(drawn(), kind), f"image/{kind.lower()}")
    assert page.has_figures
    assert page.image is not None
    assert (page.image.width_px, page.image.height_px) == (600, 300)
    with Image.open(page.image.path) as image:
        assert image.mode in ("RGB", "L")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "I;16"])
def test_every_colour_mode_is_taken(make_job: MakeJob, mode: str) -> None:
    image = (
        drawn(mode="L").convert("I").point(lambda v: v * 257).convert("I;16") if mode == "I;16" else drawn(mode=mode)
    )
    (page,) = pages(make_job, saved(image, "TIFF"), "image/tiff")
    assert page.image is not None
    with Image.open(page.image.path) as kept:
        assert darkest(kept) < 60


def test_what_is_transparent_is_white(make_job: MakeJob) -> None:
    image = Image.new("RGBA", (200, 100), (0, 0, 0, 0))
    ImageDraw.Draw(image).text((10, 10), "CLEAR", font=ImageFont.load_default(40), fill=(0, 0, 0, 255))
    (page,) = pages(make_job, saved(image, "PNG"), "image/png")
    assert page.image is not None
    with Image.open(page.image.path) as kept:
        assert darkest(kept.crop((150, 60, 200, 100))) > 240


@pytest.mark.parametrize("ink", ["white", None])
def test_white_words_on_a_transparent_ground_are_seen_and_no_words_are_blank(
    make_job: MakeJob, ink: str | None
) -> None:
    image = Image.new("RGBA", (400, 200), (255, 255, 255, 0))
    if ink is not None:
        ImageDraw.Draw(image).text((60, 60), "CLEAR", font=ImageFont.load_default(40), fill=ink)
    (page,) = pages(make_job, saved(image, "PNG"), "image/png")
    assert page.blank is (ink is None)
    assert (page.image is None) is page.blank


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("colour", ["black", "#101040"])
def test_one_dark_colour_all_over_is_blank_and_a_faint_word_on_it_is_not(
    make_job: MakeJob, colour: str, kind: str
) -> None:
    image = Image.new("RGB", (800, 600), colour)
    assert pages(make_job, saved(image, kind), f"image/{kind.lower()}")[0].blank
    ImageDraw.Draw(image).text((300, 300), "TIDE", font=ImageFont.load_default(20), fill="#181860")
    assert not pages(make_job, saved(image, kind), f"image/{kind.lower()}")[0].blank


def test_floats_from_0_to_1_are_shades_of_grey(make_job: MakeJob) -> None:
    image = drawn(mode="L").convert("F").point(lambda level: level * (1 / 255))
    (page,) = pages(make_job, saved(image, "TIFF"), "image/tiff")
    assert page.image is not None
    with Image.open(page.image.path) as kept:
        assert kept.convert("L").getextrema() == (0, 255)


def test_a_photo_is_turned_upright_and_fitted(make_job: MakeJob) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (page,) = pages(make_job, saved(drawn((3000, 2000), words="\n\n\n   TIDE GATE"), "JPEG", exif=exif), "image/jpeg")
    assert page.image is not None
    assert (page.image.width_px, page.image.height_px) == (1027, 1540)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_an_animation_that_begins_with_nothing_shows_its_end(make_job: MakeJob, kind: str) -> None:
    empty, words = drawn(mode="L", words=""), drawn(mode="L")
    content = saved(empty, kind, save_all=True, append_images=[empty.rotate(1, fillcolor=255), words], duration=100)
    (page,) = pages(make_job, content, f"image/{kind.lower()}")
    assert not page.blank
    assert page.image is not None
    still = saved(empty, kind, save_all=True, append_images=[empty], duration=100)
    assert pages(make_job, still, f"image/{kind.lower()}")[0].blank


def test_the_frames_of_a_tiff_are_pages(make_job: MakeJob) -> None:
    frames = [drawn(words=f"PAGE {n}") for n in range(3)]
    blank = Image.new("RGB", (600, 300), "white")
    content = saved(frames[0], "TIFF", save_all=True, append_images=[*frames[1:], blank])
    found = pages(make_job, content, "image/tiff")
    assert [page.number for page in found] == [1, 2, 3, 4]
    assert [page.blank for page in found] == [False, False, False, True]
    assert [page.number for page in pages(make_job, content, "image/tiff", first_page=3)] == [3, 4]
    with pytest.raises(RejectedInput, match=r"limits\.max_pages = 2"):
        pages(make_job, content, "image/tiff", limits=Limits(max_pages=2))


def png_of(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_a_decompression_bomb_is_refused_by_its_header(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput) as refused:
        pages(make_job, png_of(60_000, 60_000), "image/png")
    assert refused.value.kind == "unsafe"
    assert "60000 × 60000" in refused.value.detail


@pytest.mark.parametrize("size", [100, 2000])
def test_a_damaged_image_is_corrupt(make_job: MakeJob, size: int) -> None:
    with pytest.raises(RejectedInput, match="corrupt"):
        pages(make_job, saved(drawn(), "JPEG")[:size], "image/jpeg")


def test_blank_is_told_with_specks_shading_and_borders() -> None:
    paper = Image.new("L", (1200, 1600), 236)
    assert is_blank(paper)
    draw = ImageDraw.Draw(paper)
    for at in ((100, 900), (700, 300), (500, 1400)):
        draw.point(at, 90)
    draw.rectangle((0, 0, 12, 1600), fill=40)
    assert is_blank(paper)
    draw.text((500, 700), "7", font=ImageFont.load_default(30), fill=60)
    assert not is_blank(paper)


def test_a_photo_and_a_dark_page_are_not_blank() -> None:
    assert not is_blank(Image.linear_gradient("L"))
    assert not is_blank(Image.effect_noise((500, 500), 60).point(lambda level: level // 8))
    photo = Image.new("L", (1000, 1400), 250)
    photo.paste(150, (300, 300, 700, 700))
    assert not is_blank(photo)


@pytest.mark.parametrize("size", [(700, 12_000), (12_000, 700), (372, 6375)])
def test_a_strip_with_words_at_its_ends_is_not_blank(size: tuple[int, int]) -> None:
    strip = Image.new("L", size, 255)
    assert is_blank(strip)
    for at in ((40, 60), (size[0] - 200, size[1] - 90)):
        written = strip.copy()
        ImageDraw.Draw(written).text(at, "TIDE", font=ImageFont.load_default(30), fill=0)
        assert not is_blank(written)


def test_a_pale_box_on_a_strip_is_not_blank() -> None:
    strip = Image.new("L", (700, 12_000), 255)
    strip.paste(150, (200, 5000, 320, 5120))
    assert not is_blank(strip)


def test_an_image_is_fitted_by_its_long_side_its_pixels_and_its_shape() -> None:
    assert fit(595, 842, long_side_px=1540, max_pixels=40_000_000) == pytest.approx(1540 / 842)
    assert fit(8400, 8400, long_side_px=1540, max_pixels=1_000_000) == pytest.approx(1000 / 8400)
    assert fit(600, 300, long_side_px=1540, max_pixels=40_000_000, enlarge=False) == 1
    # A receipt: its width stays readable, within the pixels of an ordinary page.
    strip = fit(200, 2000, long_side_px=1540, max_pixels=40_000_000)
    assert strip * 200 > 400
    assert strip * 200 * strip * 2000 <= 1540 * 1540 * 1.001


def test_a_frame_that_is_too_large_or_damaged_fails_alone(make_job: MakeJob) -> None:
    frames = [drawn(words=f"PAGE {number}", size=size) for number, size in ((2, (2000, 1000)), (3, (600, 300)))]
    content = saved(drawn(words="PAGE 1"), "TIFF", save_all=True, append_images=frames)
    first, large, last = pages(make_job, content, "image/tiff", limits=Limits(max_pixels=200_000))
    assert (first.failure, last.failure) == (None, None)
    assert large.failure is not None
    assert large.failure.kind == "unsafe"
    assert large.failure.detail.startswith("page 2 has 2000 × 1000 pixels")
    assert last.image is not None
