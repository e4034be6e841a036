"""Text files become sections; tables repeat their header; what isn't text in them stays what it is."""

from __future__ import annotations

import time

import pytest

from pipeline.documents import media
from pipeline.documents.job import Ended, Opened
from pipeline.documents.sections import plain_sections, sections
from pipeline.documents.text import read
from pipeline.domain.document import ParsedPage, TextFormat, TextQuality
from pipeline.domain.errors import RejectedInput
from tests.unit.documents.conftest import MakeJob


def pages(make_job: MakeJob, content: bytes | str, media_type: str, **changes: object) -> list[ParsedPage]:
    return [event for event in read(make_job(content, media_type, **changes)) if isinstance(event, ParsedPage)]


def test_plain_text_keeps_its_lines(make_job: MakeJob) -> None:
    (page,) = pages(make_job, "One\ntwo\r\n\r\nthree", media.PLAIN)
    assert page.text == "One\ntwo\n\nthree"
    assert (page.text_format, page.text_quality) == (TextFormat.PLAIN, TextQuality.GOOD)


@pytest.mark.parametrize("content", ["", " \n\t", "\ufeff"])
def test_nothing_is_one_blank_page(make_job: MakeJob, content: str) -> None:
    (page,) = pages(make_job, content, media.PLAIN)
    assert page.blank
    assert page.text_quality is TextQuality.NONE


def test_what_no_database_stores_is_made_safe(make_job: MakeJob) -> None:
    (page,) = pages(make_job, b"a\0b\x07c \xed\xa0\x80", media.PLAIN)
    page.text.encode("utf-8")
    assert "\0" not in page.text
    assert page.text.startswith("abc")


def test_what_is_typed_over_is_read_once(make_job: MakeJob) -> None:
    (page,) = pages(make_job, b"N\x08NA\x08AM\x08ME\x08E _\x08o_\x08n\n\x08it", media.PLAIN)
    assert page.text == "NAME on\nit"


def test_markdown_is_cut_before_headings_and_gives_its_title(make_job: MakeJob) -> None:
    text = "# Handbook\n\n" + "\n\n".join(f"## Part {n}\n\n{'Some words here. ' * 120}" for n in range(6))
    opened, *middle, ended = read(make_job(text, media.MARKDOWN))
    found = [event for event in middle if isinstance(event, ParsedPage)]
    assert opened == Opened(len(found), "Handbook")
    assert ended == Ended("Handbook")
    assert len(found) > 1
    assert all(len(page.text) <= 6000 for page in found)
    assert all(page.text.startswith("#") for page in found)
    assert [page.number for page in found] == list(range(1, len(found) + 1))


def test_front_matter_names_the_document_and_is_kept(make_job: MakeJob) -> None:
    opened, *_ = read(make_job("---\ntitle: 'The Watch'\ntags: [x]\n---\n# Other\n", media.MARKDOWN))
    assert opened == Opened(1, "The Watch")
    (page,) = pages(make_job, "---\ntitle: T\n---\n# Other\n", media.MARKDOWN)
    assert page.text == "```yaml\ntitle: T\n```\n\n# Other"


def test_csv_is_a_table_whose_header_every_section_repeats(make_job: MakeJob) -> None:
    rows = "\n".join(f"{n};gate {n};a|b" for n in range(400))
    found = pages(make_job, f"no;name;note\n{rows}", media.CSV)
    assert len(found) > 1
    assert all(page.text.startswith("| no | name | note |\n| --- | --- | --- |\n| ") for page in found)
    assert found[0].text.splitlines()[2] == r"| 0 | gate 0 | a\|b |"
    assert sum(len(page.text.splitlines()) - 2 for page in found) == 400


def test_a_table_of_millions_of_cells_is_refused(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput, match="too_large"):
        pages(make_job, b"," * 2_000_001, media.CSV)


def test_one_row_of_very_many_cells_does_not_make_all_rows_as_long(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput, match="too_large: a table that is filled up"):
        pages(make_job, "a,b\n" * 10_000 + "x," * 100_000, media.CSV)


@pytest.mark.parametrize("row", ["1,{}\n", "{},1\n2,3\n"])
def test_a_cell_of_megabytes_is_kept_whole_and_cut_into_sections(make_job: MakeJob, row: str) -> None:
    words = [f"w{number}" for number in range(200_000)]
    began = time.process_time()
    found = pages(make_job, "id,text\n" + row.format(" ".join(words)), media.CSV)
    assert time.process_time() - began < 10
    assert all(len(page.text) <= 6000 for page in found)
    kept = "".join(page.text.removeprefix("| id | text |\n| --- | --- |") + " " for page in found)
    assert [word for word in kept.split() if word.startswith("w")] == words


def test_tsv_json_and_json_lines(make_job: MakeJob) -> None:
    assert pages(make_job, "a\tb,c\n1\t2", media.TSV)[0].text == "| a | b,c |\n| --- | --- |\n| 1 | 2 |"
    assert pages(make_job, '{"a":{"b":"名"}}', media.JSON)[0].text == '```json\n{\n  "a": {\n    "b": "名"\n  }\n}\n```'
    assert pages(make_job, '{"a":1}\n{"a":2}\n', media.JSONL)[0].text == '```json\n{"a":1}\n{"a":2}\n```'
    assert pages(make_job, "{broken", media.JSON)[0].text == "{broken"
    assert pages(make_job, "[" * 100_000, media.JSON)
    assert pages(make_job, "{}", media.JSON)[0].blank


def test_letters_written_as_numbers_are_read_in_json_lines(make_job: MakeJob) -> None:
    content = '{"gate": "\\u6f6e\\u9580 \\ud800"}\n\n{broken \\u6f6e\n{"gate":  "as it is"}\n'
    (page,) = pages(make_job, content, media.JSONL)
    assert page.text == '```json\n{"gate": "潮門 \ufffd"}\n\n{broken \\u6f6e\n{"gate":  "as it is"}\n```'


@pytest.mark.parametrize("first", ["sep=;\r\n", '"sep=;"\n', "SEP=;\r"])
def test_the_separator_that_excel_writes_is_no_row(make_job: MakeJob, first: str) -> None:
    (page,) = pages(make_job, f"{first}Gate;Opens\n7;6,5\n8;7,0,1\n", media.CSV)
    assert page.text.split("\n") == ["| Gate | Opens |", "| --- | --- |", "| 7 | 6,5 |", "| 8 | 7,0,1 |"]


def test_json_that_gives_a_name_twice_is_kept_as_it_is_written(make_job: MakeJob) -> None:
    assert pages(make_job, '[{"a":"one","a":"two"}]', media.JSON)[0].text == '[{"a":"one","a":"two"}]'


def test_too_many_sections_are_refused(make_job: MakeJob) -> None:
    from pipeline.domain.document import Limits

    with pytest.raises(RejectedInput, match=r"limits\.max_pages = 2"):
        pages(make_job, "word " * 4000, media.PLAIN, limits=Limits(max_pages=2))


def test_a_line_without_a_break_is_cut_all_the_same() -> None:
    found = list(plain_sections("x" * 25_000, 6000))
    assert "".join(found) == "x" * 25_000
    assert all(len(part) <= 6000 for part in found)


def test_lines_without_an_empty_one_are_cut_in_linear_time() -> None:
    began = time.process_time()
    found = list(plain_sections("a name\n" * 400_000))
    assert time.process_time() - began < 5
    assert len(" ".join(found).split()) == 800_000


def test_paragraphs_stay_whole_where_they_fit() -> None:
    assert list(plain_sections("\none\ntwo \n\n \nthree\n\nfour", 16)) == ["one\ntwo", "three\n\nfour"]


def test_a_long_table_is_cut_between_rows() -> None:
    table = "| a |\n| --- |\n" + "\n".join(f"| {n} |" for n in range(2000))
    found = list(sections(table, 1000))
    assert all(part.startswith("| a |\n| --- |\n") and len(part) <= 1000 for part in found)
