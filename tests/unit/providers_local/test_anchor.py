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


def test_a_line_with_misread_letters_is_taken_from_the_text_layer() -> None:
    layer = "system. It began\nin the early 970s to replace the previous decentralised\nsystem, says Ælfgifu"

    assert mended("in the early 97os toreplace the previous decentralisod", layer) == (
        "in the early 970s to replace the previous decentralised"
    )


def test_a_misread_letter_at_a_lines_end_is_mended_too() -> None:
    layer = "and his first wife\nÆlfgifu. A detailed account is not\npossible"

    assert mended("AElfgifu. A detailed account is nol", layer) == "Ælfgifu. A detailed account is not"


def test_a_hole_in_the_text_layer_does_not_go_over_what_was_read() -> None:
    layer = "practical di\ufffdculties for taking advantage of them"

    assert mended("practical difficulties for taking advantage of", layer) == (
        "practical difficulties for taking advantage of"
    )


def test_another_number_in_a_line_that_is_alike_is_not_overwritten_from_afar() -> None:
    assert mended("Gate 17 opens", "Gate 99 opens") == "Gate 17 opens"


def test_what_the_text_layer_does_not_know_is_kept() -> None:
    assert mended("Voltage 230 V", "an entirely other text") == "Voltage 230 V"
    assert mended("Voltage 230 V", "") == "Voltage 230 V"


def test_only_unreadable_scripts_are_believed_unseen() -> None:
    assert believe("الخطوط العربية الجميلة", LATIN)
    assert not believe("a plain English text layer", LATIN)
    assert not believe("خط", LATIN)
