"""East Asian text whose font no file and no machine holds keeps every character."""

from __future__ import annotations

import pytest

from pipeline.documents import media
from pipeline.documents.pdf import read
from pipeline.domain.document import ParsedPage
from tests.unit.documents.conftest import MakeJob

FONTS = {
    "Japan1": ("HeiseiMin-W3", "UniJIS-UCS2-H"),
    "Korea1": ("HYSMyeongJo-Medium", "UniKS-UCS2-H"),
    "GB1": ("STSong-Light", "UniGB-UCS2-H"),
    "CNS1": ("MSung-Light", "UniCNS-UCS2-H"),
}


def written(ordering: str, placed: list[tuple[float, float, str]]) -> bytes:
    """A page of texts in a font that is only named."""
    font, cmap = FONTS[ordering]
    drawing = "".join(f"BT /F0 14 Tf {x} {y} Td <{words.encode('utf-16-be').hex()}> Tj ET\n" for x, y, words in placed)
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        " /Resources << /Font << /F0 5 0 R >> >> >>",
        f"<< /Length {len(drawing)} >> stream\n{drawing}\nendstream",
        f"<< /Type /Font /Subtype /Type0 /BaseFont /{font}-{cmap} /Encoding /{cmap} /DescendantFonts [6 0 R] >>",
        f"<< /Type /Font /Subtype /CIDFontType0 /BaseFont /{font} /FontDescriptor 7 0 R /DW 1000"
        f" /CIDSystemInfo << /Registry (Adobe) /Ordering ({ordering}) /Supplement 2 >> >>",
        f"<< /Type /FontDescriptor /FontName /{font} /Flags 6 /FontBBox [-123 -257 1001 910] /ItalicAngle 0"
        " /Ascent 857 /Descent -143 /CapHeight 709 /StemV 69 >>",
    ]
    body = "".join(f"{number} 0 obj\n{one}\nendobj\n" for number, one in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer << /Root 1 0 R /Size 8 >>\n%%EOF".encode()


def page_of(make_job: MakeJob, content: bytes) -> ParsedPage:
    (page,) = [event for event in read(make_job(content, media.PDF)) if isinstance(event, ParsedPage)]
    return page


@pytest.mark.parametrize(
    ("ordering", "words"),
    [
        ("Japan1", "潮門の操作手順"),
        ("Korea1", "갑문운영지침"),
        ("GB1", "潮汐闸门操作手册"),
        ("CNS1", "潮汐閘門操作手冊"),
    ],
)
def test_text_placed_character_by_character_is_read(make_job: MakeJob, ordering: str, words: str) -> None:
    placed = [(72.0 + 14 * column, 700.0 - 20 * row, char) for row in range(3) for column, char in enumerate(words)]
    page = page_of(make_job, written(ordering, placed))
    assert not page.blank
    assert page.text.split("\n") == [words] * 3


def test_equal_words_on_different_lines_are_all_kept(make_job: MakeJob) -> None:
    placed = [(72.0, 700.0 - 20 * row, "東京都港区の潮門操作手順。担当は佐藤です。") for row in range(4)]
    assert (
        page_of(make_job, written("Japan1", placed)).text.split("\n")
        == ["東京都港区の潮門操作手順。担当は佐藤です。"] * 4
    )
