"""The parse stage: limits before anything else, and pages that end the child cost themselves only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from examples.make import handbook_pdf
from pipeline.documents import media
from pipeline.documents.job import Begun, Ended, Event, Job, Opened, Rejected
from pipeline.documents.sandbox import OutOfMemory, PageStuck
from pipeline.domain.document import Limits, ParsedDocument, ParsedPage, TextFormat, TextQuality
from pipeline.domain.errors import ChildDied, RejectedInput
from pipeline.stages.parse import parse

Script = Sequence[Event | Exception]


def page(number: int) -> ParsedPage:
    return ParsedPage(number, f"text {number}", TextFormat.PLAIN, TextQuality.GOOD)


class Children:
    """Plays one script a child, and remembers the page each was asked to begin with."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = iter(scripts)
        self.first_pages: list[int] = []

    def __call__(self, job: Job, *, seconds: float, silence_s: float | None) -> Iterator[Event]:
        assert seconds >= 0
        assert silence_s is not None
        self.first_pages.append(job.first_page)
        for item in next(self._scripts):
            if isinstance(item, Exception):
                raise item
            yield item


def parsed(tmp_path: Path, children: Children, limits: Limits | None = None) -> ParsedDocument:
    path = tmp_path / "file"
    path.write_bytes(b"anything")
    return parse(path, media.PDF, limits or Limits(), workdir=tmp_path, run=children)


CRASH = ChildDied("crashed", "SIGSEGV")


def test_a_pdf_is_parsed_in_a_child(tmp_path: Path) -> None:
    path, workdir = tmp_path / "handbook", tmp_path / "work"
    path.write_bytes(handbook_pdf())
    workdir.mkdir()
    document = parse(path, media.PDF, Limits(), workdir=workdir, image_policy="all")
    assert document.title == "Tide Gate Handbook"
    assert [page.number for page in document.pages] == [1, 2]
    assert "North gate\t-0.40 m\t1.85 m\t2.10 m\t6 min" in document.pages[0].text
    image = document.pages[0].image
    assert image is not None
    assert image.path.parent == workdir
    assert (image.width_px, image.height_px) == (1089, 1540)


def test_page_images_are_as_large_as_the_recipe_wants_them(tmp_path: Path) -> None:
    path, workdir = tmp_path / "handbook", tmp_path / "work"
    path.write_bytes(handbook_pdf())
    workdir.mkdir()
    document = parse(path, media.PDF, Limits(), workdir=workdir, image_policy="all", long_side_px=700)
    sizes = [(page.image.width_px, page.image.height_px) for page in document.pages if page.image]
    assert [max(size) for size in sizes] == [700, 700]


def test_a_file_over_max_bytes_is_refused_unread(tmp_path: Path) -> None:
    with pytest.raises(RejectedInput, match=r"too_large: 8 bytes; limits.max_bytes = 7"):
        parsed(tmp_path, Children(), Limits(max_bytes=7))


def test_a_refusal_in_the_child_is_one_here(tmp_path: Path) -> None:
    with pytest.raises(RejectedInput, match="corrupt: not a readable PDF"):
        parsed(tmp_path, Children([Rejected("corrupt", "not a readable PDF")]))


def test_a_title_found_at_the_end_serves_where_none_was_declared(tmp_path: Path) -> None:
    children = Children([Opened(1, None), Begun(1), page(1), Ended("First heading")])
    assert parsed(tmp_path, children).title == "First heading"


def test_a_page_that_ends_the_child_is_tried_again_first_in_a_new_one(tmp_path: Path) -> None:
    children = Children(
        [Opened(3, "T"), Begun(1), page(1), Begun(2), CRASH],
        [Opened(3, "T"), Begun(2), page(2), Begun(3), page(3), Ended()],
    )
    document = parsed(tmp_path, children)
    assert children.first_pages == [1, 2]
    assert [page.failure for page in document.pages] == [None, None, None]


def test_a_page_that_ends_the_child_twice_fails_alone(tmp_path: Path) -> None:
    children = Children(
        [Opened(3, "T"), Begun(1), page(1), Begun(2), CRASH],
        [Opened(3, "T"), Begun(2), CRASH],
        [Opened(3, "T"), Begun(3), page(3), Ended()],
    )
    document = parsed(tmp_path, children)
    assert children.first_pages == [1, 2, 3]
    assert [page.number for page in document.pages] == [1, 2, 3]
    failure = document.pages[1].failure
    assert failure is not None
    assert (failure.kind, failure.detail) == ("corrupt", "page 2 ends the parser (crashed: SIGSEGV)")


def test_a_page_that_hangs_fails_at_once_and_the_last_page_may_be_it(tmp_path: Path) -> None:
    children = Children([Opened(2, "T"), Begun(1), page(1), Begun(2), PageStuck(60.0)])
    document = parsed(tmp_path, children)
    failure = document.pages[1].failure
    assert failure is not None
    assert (failure.kind, failure.detail) == ("unsafe", "page 2 was not parsed within 60 s")


def test_a_page_that_wants_too_much_memory_fails_alone(tmp_path: Path) -> None:
    hungry = OutOfMemory("unsafe", "needs more memory than limits.parse_memory_mb = 64")
    children = Children(
        [Opened(2, "T"), Begun(1), hungry],
        [Opened(2, "T"), Begun(2), page(2), Ended()],
    )
    document = parsed(tmp_path, children)
    failure = document.pages[0].failure
    assert failure is not None
    assert (failure.kind, failure.detail) == ("unsafe", "page 1 needs more memory than limits.parse_memory_mb = 64")
    assert document.pages[1].failure is None
    with pytest.raises(RejectedInput, match="unsafe: needs more memory"):
        parsed(tmp_path, Children([Opened(2, "T"), hungry]))


def test_each_page_that_hangs_leaves_the_next_one_less_time(tmp_path: Path) -> None:
    allowed: list[float | None] = []

    def run(job: Job, *, seconds: float, silence_s: float | None) -> Iterator[Event]:
        del seconds
        allowed.append(silence_s)
        yield Opened(7, None)
        yield Begun(job.first_page)
        raise PageStuck(silence_s or 0.0)

    path = tmp_path / "file"
    path.write_bytes(b"anything")
    document = parse(path, media.PDF, Limits(parse_seconds=300), workdir=tmp_path, run=run)
    assert len(document.pages) == 7
    assert allowed == [60.0, 30.0, 15.0, 7.5, 5.0, 5.0, 5.0]


def test_a_child_that_is_killed_before_any_page_is_one_lost_lease(tmp_path: Path) -> None:
    with pytest.raises(ChildDied):
        parsed(tmp_path, Children([Opened(2, "T"), ChildDied("killed", "SIGKILL from outside")]))


def test_a_file_that_crashes_two_children_before_any_page_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(RejectedInput, match=r"corrupt: it ends the parser \(SIGSEGV\)"):
        parsed(tmp_path, Children([CRASH], [Opened(2, "T"), CRASH]))
    children = Children([CRASH], [Opened(1, "T"), Begun(1), page(1), Ended()])
    assert len(parsed(tmp_path, children).pages) == 1


def test_a_child_that_stops_in_the_middle_without_a_word_is_a_death(tmp_path: Path) -> None:
    with pytest.raises(ChildDied, match="before the end"):
        parsed(tmp_path, Children([Opened(2, "T"), Begun(1), page(1)]))


def test_a_file_of_bad_pages_is_given_up(tmp_path: Path) -> None:
    scripts: list[Script] = [[Opened(99, None), Begun(number), PageStuck(60.0)] for number in range(1, 99)]
    with pytest.raises(RejectedInput, match="more than 10 pages can't be parsed"):
        parsed(tmp_path, Children(*scripts))
