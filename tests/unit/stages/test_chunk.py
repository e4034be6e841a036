"""The chunk stage: within the limit, nothing lost, structure kept, page breaks healed."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.domain.document import Chunk
from pipeline.stages.chunk import cautious, chunk

_TOKEN = re.compile(r"\w{1,4}|[^\w\s]")


def count(text: str) -> int:
    """A tokenizer's habits: long words take several tokens, signs take one, and there are two marks of its own."""
    return len(_TOKEN.findall(text)) + 2


def chunked(*pages: str, limit: int = 60, title: str | None = None, overlap: int = 0) -> tuple[Chunk, ...]:
    numbered = list(enumerate(pages, start=1))
    return chunk(numbered, title=title, max_tokens=limit, count_tokens=count, overlap_tokens=overlap)


def words(text: str) -> str:
    return re.sub(r"[\s|`#*>~\\-]+", "", text)


def test_a_short_document_is_one_chunk_with_its_heading_path_and_pages() -> None:
    (only,) = chunked("# Gates\n\nThe north gate opens at 2.4 m.", title="Handbook")
    assert only.text == "# Gates\n\nThe north gate opens at 2.4 m."
    assert (only.ordinal, only.heading, only.page_from, only.page_to) == (1, ("Handbook", "Gates"), 1, 1)
    assert only.tokens == count(only.text)


def test_a_title_that_is_the_first_heading_is_not_said_twice() -> None:
    (only,) = chunked("# Handbook\n\n## Gates\n\nText.", title="handbook")
    assert only.heading == ("Handbook", "Gates")


def test_no_text_gives_no_chunk() -> None:
    assert chunked("", "  \n") == ()


def test_sections_begin_their_own_chunks_once_the_one_before_is_full_enough() -> None:
    long = "The gate keeper notes the level every hour and calls the office. " * 2
    first, second = chunked(f"# A\n\n{long}\n\n# B\n\n{long}", limit=60)
    assert first.heading == ("A",)
    assert second.heading == ("B",)
    assert second.text.startswith("# B")


def test_short_sections_share_a_chunk_whose_path_is_what_they_have_in_common() -> None:
    (only,) = chunked("# A\n\n## One\n\nShort.\n\n## Two\n\nShort too.", limit=60)
    assert only.heading == ("A",)


def test_a_heading_is_never_left_at_the_end_of_a_chunk() -> None:
    text = "Some words to fill it up. " * 3
    for chunk_ in chunked(f"# A\n\n{text}\n\n## B\n\n{text}\n\n## C\n\n{text}", limit=40):
        assert not chunk_.text.splitlines()[-1].startswith("#")


def test_a_table_keeps_its_header_in_every_piece() -> None:
    rows = "\n".join(f"| G{n} | {n} m | open |" for n in range(30))
    found = chunked(f"## Levels\n\n| gate | level | state |\n| --- | --- | --- |\n{rows}", limit=60)
    assert len(found) > 2
    assert all("| gate | level | state |\n| --- | --- | --- |" in piece.text for piece in found)
    assert all(piece.heading == ("Levels",) for piece in found)


def test_code_stays_whole_where_it_can_and_keeps_its_fences_where_it_cannot() -> None:
    body = "\n".join(f"step_{n} = open_gate({n})" for n in range(20))
    for piece in chunked(f"Before it.\n\n```python\n{body}\n```", limit=70):
        if "step" in piece.text:
            assert piece.text.count("```") == 2
    (whole,) = [piece for piece in chunked("x " * 45 + "\n\n```\nshort code\n```") if "short" in piece.text]
    assert whole.text.count("```") == 2


def test_a_line_of_seven_thousand_characters_is_split() -> None:
    found = chunked("x" * 7000, limit=100)
    assert "".join(piece.text for piece in found) == "x" * 7000
    assert all(piece.tokens <= 100 for piece in found)


@pytest.mark.parametrize(
    "sign",
    [
        "ที่",
        "น้ำ",
        "मि",
        "क्ष",
        "é",
        "👍🏽",
        "❤️",
        "👩\u200d👧",
        "🇫🇷",
        "\U0001f3f4\U000e0067\U000e007f",
        "\u1112\u1161\u11ab",
    ],
)
def test_what_is_written_as_one_sign_is_not_cut(sign: str) -> None:
    found = chunked(sign * 60, limit=10)
    assert "".join(piece.text for piece in found) == sign * 60
    assert all(piece.text == sign * (len(piece.text) // len(sign)) for piece in found)


def test_a_paragraph_over_a_page_break_is_joined_and_spans_both_pages() -> None:
    (only,) = chunked("The pump starts when the level", "rises above two metres.")
    assert only.text == "The pump starts when the level rises above two metres."
    assert (only.page_from, only.page_to) == (1, 2)


def test_a_word_hyphenated_over_a_page_break_or_a_line_is_joined() -> None:
    (only,) = chunked("Call the har-", "bour office at once be-\nfore noon.")
    assert only.text == "Call the harbour office at once before noon."


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ("Die Vor-", "und Nachteile", "Die Vor- und Nachteile"),
        ("Die Kosten in Nordrhein-", "Westfalen", "Die Kosten in Nordrhein-Westfalen"),
        ("Das Donau\u00ad", "dampfschiff", "Das Donaudampfschiff"),
    ],
)
def test_a_hyphen_at_a_lines_end_is_read_as_what_it_stands_for(before: str, after: str, whole: str) -> None:
    for pages in ((f"{before}\n{after}",), (before, after)):
        (only,) = chunked(*pages)
        assert only.text == whole


def test_soft_hyphens_are_in_no_chunk() -> None:
    assert not chunked("\u00ad")
    (only,) = chunked(
        "# Rechts\u00adschutz\n\n| Zu\u00adsatz | a |\n| --- | --- |\n| b\u00adc | 1 |\n\n> ei\u00adne Zeile\u00ad",
        "Neu.",
    )
    assert "\u00ad" not in only.text
    assert only.heading == ("Rechtsschutz",)


def test_a_compound_that_the_document_writes_with_a_hyphen_keeps_it() -> None:
    (only,) = chunked("A well-known rule. It is well-\nknown to all.")
    assert only.text == "A well-known rule. It is well-known to all."


def test_a_sentence_that_ended_is_not_joined_with_the_next_page() -> None:
    (only,) = chunked("It ended.", "and this begins oddly.")
    assert only.text == "It ended.\n\nand this begins oddly."


def test_chinese_is_joined_over_a_page_break_without_a_space() -> None:
    (only,) = chunked("值班人员每小时", "记录水位。")
    assert only.text == "值班人员每小时记录水位。"


def test_a_table_that_goes_on_over_a_page_break_is_one() -> None:
    head = "| a | b |\n| --- | --- |"
    (only,) = chunked(f"{head}\n| 1 | 2 |", f"{head}\n| 3 | 4 |")
    assert only.text == f"{head}\n| 1 | 2 |\n| 3 | 4 |"


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ("The gate is opened by the", "Harbour master alone.", "The gate is opened by the Harbour master alone."),
        ("The level rose to", "12 metres.", "The level rose to 12 metres."),
        ("潮位在凌晨达到", "2.4 米。", "潮位在凌晨达到 2.4 米。"),
        ("يفتح الحارس", "البوابة عند الفجر.", "يفتح الحارس البوابة عند الفجر."),
        ("- first\n- the second goes", "on over the page", "- first\n- the second goes on over the page"),
    ],
)
def test_a_sentence_goes_on_over_a_page_break(before: str, after: str, whole: str) -> None:
    (only,) = chunked(before, after)
    assert only.text == whole


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("他说：“水位下降了。”", "值班人员离开。"),
        ("It ended (at last).", "so it did"),
        ("What came before", "3 Who decides"),
        ("यह समाप्त हुआ।", "फिर शुरू हुआ"),
    ],
)
def test_what_ended_or_begins_anew_is_not_joined(before: str, after: str) -> None:
    (only,) = chunked(before, after)
    assert only.text == f"{before}\n\n{after}"


def test_chinese_broken_at_a_lines_end_is_joined_but_a_list_of_names_is_not() -> None:
    (only,) = chunked("值班人员每小时记录一次水\n位并报告。", limit=90)
    assert only.text == "值班人员每小时记录一次水位并报告。"
    (names,) = chunked("张三\n李四")
    assert names.text == "张三\n李四"


def test_a_table_that_goes_on_without_its_header_is_one_when_a_row_of_amounts_was_taken_for_one() -> None:
    head = "| gate | level |\n| --- | --- |"
    (only,) = chunked(f"{head}\n| north | 2.4 |", "| south | 1.7 |\n| --- | --- |\n| east | 0.9 |")
    assert only.text == f"{head}\n| north | 2.4 |\n| south | 1.7 |\n| east | 0.9 |"


def test_tables_that_only_stand_in_a_row_stay_two() -> None:
    one, other = "| gate | level |\n| --- | --- |\n| north | 2.4 |", "| pump | state |\n| --- | --- |\n| Bess | on |"
    (only,) = chunked(one, other)
    assert only.text == f"{one}\n\n{other}"


def test_pieces_of_what_runs_over_many_pages_name_their_own_pages() -> None:
    head = "| gate | level |\n| --- | --- |"
    pages = ["\n".join([head, *(f"| G{page}x{row} | 2.{row} |" for row in range(8))]) for page in range(1, 7)]
    for piece in chunked(*pages, limit=60):
        named = [int(page) for page in re.findall(r"G(\d)x", piece.text)]
        assert (piece.page_from, piece.page_to) == (min(named), max(named))


def test_a_section_that_is_cut_repeats_the_last_sentences() -> None:
    sentences = [f"Sentence number {word} of it." for word in "abcdefghijklmnop"]
    found = chunked("# A\n\n" + " ".join(sentences), limit=60, overlap=20)
    assert len(found) > 2
    for one, other in itertools.pairwise(found):
        shared = [sentence for sentence in sentences if sentence in one.text and sentence in other.text]
        assert shared
        assert other.text.startswith(shared[0])
        assert one.text.endswith(shared[-1])
        assert count(" ".join(shared)) <= 20


def test_a_list_repeats_its_last_items_whole() -> None:
    found = chunked("\n".join(f"- item number {n}" for n in range(30)), limit=60, overlap=20)
    for one, other in itertools.pairwise(found):
        first = other.text.splitlines()[0]
        assert first.startswith("- item number")
        assert first in one.text.splitlines()


def test_tables_code_and_new_sections_repeat_nothing() -> None:
    rows = "\n".join(f"| G{n} | {n} m |" for n in range(40))
    code = "\n".join(f"step_{n}()" for n in range(30))
    long = "The keeper notes the level every hour and calls. " * 4
    text = f"# A\n\n| gate | level |\n| --- | --- |\n{rows}\n\n# B\n\n```\n{code}\n```\n\n# C\n\n{long}"
    assert [piece.text for piece in chunked(text, overlap=20) if "G" in piece.text] == [
        piece.text for piece in chunked(text) if "G" in piece.text
    ]
    together = "".join(piece.text for piece in chunked(text, overlap=20))
    assert all(together.count(f"step_{n}()") == 1 for n in range(30))
    (first,) = [piece for piece in chunked(text, overlap=20) if "# C" in piece.text]
    assert first.text.startswith("# C")


def test_chinese_repeats_clauses_without_a_space() -> None:
    text = "，".join(f"第{sign}道水闸在涨潮前关闭" for sign in "一二三四五六七八九") + "。"
    found = chunk([(1, text)], title=None, max_tokens=60, count_tokens=len, overlap_tokens=20)
    assert len(found) > 1
    for one, other in itertools.pairwise(found):
        assert other.text[:13] in one.text
        assert " " not in other.text


def test_an_overlap_above_half_a_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="overlap_tokens 31"):
        chunked("x", limit=60, overlap=31)


def test_code_that_fits_a_chunk_only_without_its_heading_stays_whole() -> None:
    body = "\n".join(f"open({n})" for n in range(1, 12))
    code = f"```\n{body}\n```"
    assert code in [piece.text for piece in chunked(f"## Opening them all\n\n{code}", limit=count(code))]


def test_a_count_for_an_unknown_tokenizer_is_above_what_is_known_of_others() -> None:
    cautiously = cautious(lambda text: len(text.split()), 1.25)
    assert cautiously("four words of text") == 5 + 2
    assert cautiously("уровень воды") == 11 + 2
    assert cautiously("水位 level") == 4 + 2 + 2
    assert cautiously("😀") == 4 + 2
    assert cautious(count, 1) is count


def test_chunks_are_within_a_cautious_count() -> None:
    text = "Смотритель шлюза записывает уровень воды каждые два часа. " * 20
    cautiously = cautious(count, 1.25)
    found = chunk([(1, text)], title=None, max_tokens=100, count_tokens=cautiously, overlap_tokens=20)
    assert all(piece.tokens == cautiously(piece.text) <= 100 for piece in found)


def test_a_huge_table_is_cut_without_being_measured_whole() -> None:
    longest = 0

    def measured(text: str) -> int:
        nonlocal longest
        longest = max(longest, len(text))
        return count(text)

    table = "| a | b |\n| --- | --- |\n" + "\n".join(f"| {n} | {n} |" for n in range(3000))
    found = chunk([(1, table)], title=None, max_tokens=60, count_tokens=measured)
    assert "| 2999 | 2999 |" in found[-1].text
    assert longest <= 64 * 60


def test_running_headers_footers_and_page_numbers_are_dropped() -> None:
    pages = [
        f"Harbour Handbook 2026\n\nText number {word} is here.\n\nPage {n} of 4" for n, word in enumerate("abcd", 1)
    ]
    text = "\n".join(piece.text for piece in chunked(*pages))
    assert "Handbook" not in text
    assert "Page" not in text
    assert all(f"number {word}" in text for word in "abcd")


def test_left_and_right_pages_have_headers_of_their_own() -> None:
    pages = [f"{('Handbook', 'Part one')[n % 2]} {n}\n\nText number {n} ends here." for n in range(1, 11)]
    text = "\n".join(piece.text for piece in chunked(*pages))
    assert "Handbook" not in text
    assert "Part one" not in text
    assert all(f"Text number {n} ends" in text for n in range(1, 11))


def test_a_chapters_header_that_runs_over_some_of_many_pages_is_dropped() -> None:
    pages = [f"{'Of gates' if 4 <= n <= 8 else ''}\n\nText number {n} ends here." for n in range(1, 60)]
    assert "Of gates" not in "\n".join(piece.text for piece in chunked(*pages))


def test_headings_that_differ_in_their_number_are_no_running_headers() -> None:
    pages = [f"# Day {n}\n\nText of it ends here." for n in range(1, 9)]
    text = "\n".join(piece.text for piece in chunked(*pages))
    assert all(f"# Day {n}" in text for n in range(1, 9))


def test_the_heading_that_runs_over_its_pages_is_kept_where_it_comes_first() -> None:
    found = chunked(*(f"# Gates\n\nText number {word} ends here." for word in "abcde"), limit=200)
    assert "".join(piece.text for piece in found).count("# Gates") == 1
    assert found[0].heading == ("Gates",)


def test_a_header_does_not_take_the_heading_that_it_repeats_with_it() -> None:
    pages = ["# Gates\n\nText a ends.", *(f"Gates\n\nText {word} ends." for word in "bcdef")]
    text = "\n".join(piece.text for piece in chunked(*pages, limit=200))
    assert text.count("Gates") == 1
    assert text.startswith("# Gates")


def test_what_a_running_line_says_stays_beside_the_first_chunk_of_its_pages() -> None:
    pages = [f"Harbour Handbook {n}\n\nText {word} ends here.\n\nPage {n} of 4" for n, word in enumerate("abcd", 1)]
    found = chunked(*pages, limit=12)
    assert [piece.aside for piece in found] == [("Harbour Handbook 1",), *[()] * (len(found) - 1)]
    assert chunked("潮闸手册\n\n一。", "潮闸手册\n\n二。", "潮闸手册\n\n三。")[0].aside == ("潮闸手册",)


def test_a_page_is_not_left_without_its_only_line() -> None:
    pages = [f"Harbour Handbook\n\nThis is page {n} of the paper\n\n{n}" for n in range(1, 6)]
    text = "\n".join(piece.text for piece in chunked(*pages))
    assert "Handbook" not in text
    assert all(f"This is page {n} of the paper" in text for n in range(1, 6))


def test_what_repeats_on_two_pages_only_is_kept() -> None:
    text = " ".join(piece.text for piece in chunked("Same line.\n\nOne.", "Same line.\n\nTwo."))
    assert text.count("Same line.") == 2


def test_a_limit_too_small_for_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens 3 is below 8"):
        chunked("x", limit=3)


_line = st.text(alphabet="ab Z.,é中字|#-`*>\t12", max_size=60)
_block = st.one_of(
    _line,
    st.lists(_line, min_size=1, max_size=4).map("\n".join),
    st.integers(1, 4).flatmap(lambda level: _line.map(lambda text: f"{'#' * level} {text}")),
    st.lists(_line.map(lambda text: f"- {text}"), min_size=1, max_size=5).map("\n".join),
    st.lists(st.text("ab1 ", max_size=12), min_size=2, max_size=8).map(
        lambda cells: "| HEAD | k |\n| --- | --- |\n" + "\n".join(f"| {cell} | {cell} |" for cell in cells)
    ),
    st.lists(_line, max_size=6).map(lambda lines: "```\n" + "\n".join(lines).replace("`", "'") + "\n```"),
    st.text(alphabet="xyzé中", min_size=50, max_size=400),
)
_pages = st.lists(st.lists(_block, max_size=5).map("\n\n".join), min_size=1, max_size=2)


@settings(max_examples=60, deadline=None)
@given(pages=_pages, limit=st.integers(12, 90), share=st.sampled_from([0, 0.1, 0.5]))
def test_chunks_are_within_the_limit_lose_no_word_and_are_the_same_every_time(
    pages: list[str], limit: int, share: float
) -> None:
    # Each table its own header: one that repeats over a page break is dropped, and rightly.
    number = itertools.count()
    pages = [re.sub("HEAD", lambda _: f"h{next(number)}", page) for page in pages]
    overlap = int(share * limit)
    found = chunked(*pages, limit=limit, overlap=overlap)
    assert found == chunked(*pages, limit=limit, overlap=overlap)
    assert all(piece.tokens <= limit and piece.tokens == count(piece.text) for piece in found)
    assert all(piece.text.strip() for piece in found)
    assert [piece.ordinal for piece in found] == list(range(1, len(found) + 1))
    # Table headers may repeat, so what was there is looked for in order, skipping what was added.
    got = iter(words("".join(piece.text for piece in found)))
    assert all(char in got for char in words("".join(pages)))
