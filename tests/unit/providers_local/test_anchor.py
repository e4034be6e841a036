from __future__ import annotations

from pipeline.providers.local.anchor import believe, mend
from pipeline.providers.local.reading import Line

BOX = ((0.0, 0.0), (10.0, 0.0), (10.0, 5.0), (0.0, 5.0))
LATIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def mended(text: str, layer: str) -> str:
    return mend([Line(BOX, text)], layer)[0].text


def test_spacing_comes_from_the_text_layer() -> None:
    assert mended("Doclingbundles PDFdocument", "…\nDocling bundles PDF\r\ndocument conversion") == (
        "Docling bundles PDF document"
    )


def test_a_misread_word_is_spelled_as_in_the_text_layer() -> None:
    assert mended("Table of Contonts!", "Table of\nContents and more") == "Table of Contents!"


def test_what_the_text_layer_does_not_know_is_kept() -> None:
    assert mended("Voltage 230 V", "an entirely other text") == "Voltage 230 V"
    assert mended("Voltage 230 V", "") == "Voltage 230 V"


def test_only_unreadable_scripts_are_believed_unseen() -> None:
    assert believe("الخطوط العربية الجميلة", LATIN)
    assert not believe("a plain English text layer", LATIN)
    assert not believe("خط", LATIN)
