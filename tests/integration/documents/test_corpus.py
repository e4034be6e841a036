"""The awkward real files, as far as parsing goes; what only OCR can read is tried where OCR is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.documents.sniff import sniff
from pipeline.domain.document import Limits, ParsedDocument, TextQuality
from pipeline.domain.errors import RejectedInput
from pipeline.stages.parse import parse

CORPUS = Path(__file__).parents[4] / "shared" / "corpus"
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((CORPUS / "expected.json").read_text())["files"] if (CORPUS / "expected.json").exists() else {}
)

pytestmark = pytest.mark.skipif(not EXPECTED, reason="the corpus is not here")


def folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def one_of(expected: object) -> list[object]:
    return expected if isinstance(expected, list) else [expected]


def parsed(name: str, workdir: Path) -> ParsedDocument:
    return parse(CORPUS / name, sniff(CORPUS / name), Limits(), workdir=workdir)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_corpus_file_is_parsed_as_expected(name: str, tmp_path: Path) -> None:
    expected = EXPECTED[name]
    started = time.monotonic()
    if "failed" in one_of(expected["state"]):
        with pytest.raises(RejectedInput) as refused:
            parsed(name, tmp_path)
        assert refused.value.kind in one_of(expected["kind"])
        return
    document = parsed(name, tmp_path)
    assert time.monotonic() - started < expected.get("seconds", 60)
    if "pages" in expected:
        assert len(document.pages) == expected["pages"]
    assert not any(page.failure for page in document.pages)
    if expected["state"] == "empty":
        assert all(page.blank and page.image is None for page in document.pages)
    elif "done" not in one_of(expected["state"]) or "empty" not in one_of(expected["state"]):
        check_text(document, expected)


def check_text(document: ParsedDocument, expected: dict[str, Any]) -> None:
    """A text that is expected is there, or there is an image for somebody to read it from."""
    text = folded(" ".join(page.text for page in document.pages))
    text.encode("utf-8")
    trusted = all(page.text_quality is TextQuality.GOOD for page in document.pages)
    for words in expected.get("has", []):
        if trusted:
            assert folded(words) in text
        else:
            assert folded(words) in text or any(page.image for page in document.pages)
