from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.providers.sse import ServerEvent, SseParser, SseTooLarge


def read(*chunks: bytes, **caps: int) -> list[ServerEvent]:
    parser = SseParser(**caps)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.flush()


def data(*chunks: bytes) -> list[bytes]:
    return [event.data for event in read(*chunks)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_format_is_taken(end: bytes) -> None:
    stream = end.join([b"event: error", b"data: one", b"data: two", b"", b"data:three", b"", b""])
    assert read(stream) == [ServerEvent(b"error", b"one\ntwo"), ServerEvent(b"", b"three")]


def test_comments_ids_and_retry_lines_make_no_event() -> None:
    assert data(b": keep-alive\n\n:\n\nid: 7\nretry: 10\n\n") == []


def test_a_bom_is_skipped_also_when_it_comes_in_pieces() -> None:
    assert data(b"\xef", b"\xbb\xbfda", b"ta: x\n\n") == [b"x"]


def test_one_leading_space_is_taken_off_and_no_more() -> None:
    assert data(b"data:  x\n\ndata:y\n\ndata\n\n") == [b" x", b"y", b""]


def test_a_last_event_without_its_blank_line_is_kept_for_the_caller_to_judge() -> None:
    parser = SseParser()
    assert parser.feed(b'data: {"a"') == []
    assert parser.flush() == [ServerEvent(b"", b'{"a"')]


def test_line_ends_of_unicode_inside_json_do_not_split_it() -> None:
    text = "one\u2028two\u2029three\x85four\x0bfive"
    line = b"data: " + orjson.dumps({"t": text}) + b"\n\n"
    [event] = read(line)
    assert orjson.loads(event.data) == {"t": text}


def test_an_event_above_its_cap_is_refused_on_one_line_or_many() -> None:
    with pytest.raises(SseTooLarge, match="a line above 100 bytes"):
        read(b"data: " + b"x" * 200, max_event_bytes=100)
    with pytest.raises(SseTooLarge, match="an event above 100 bytes"):
        read(b"data: xxxxxxxxxx\n" * 20, max_event_bytes=100)


def test_a_stream_above_its_cap_is_refused_even_when_it_is_only_comments() -> None:
    with pytest.raises(SseTooLarge, match="a stream above 1000 bytes"):
        read(*[b": still here\n\n"] * 100, max_stream_bytes=1000)


LINE = st.one_of(
    st.just(b""),
    st.just(b": comment"),
    st.just(b"event: error"),
    st.builds(lambda text: b"data: " + orjson.dumps(text), st.text(max_size=20)),
)
STREAM = st.builds(
    lambda bom, lines: b"".join([bom, *(line + end for line, end in lines)]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(LINE, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12),
)


@settings(deadline=None)  # a busy machine is no finding
@given(stream=STREAM, cuts=st.lists(st.integers(0, 400), max_size=30))
def test_the_events_do_not_depend_on_where_the_reads_were_split(stream: bytes, cuts: list[int]) -> None:
    at = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(at)]
    assert read(*pieces) == read(stream)
    assert read(*[bytes([byte]) for byte in stream]) == read(stream)


@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"data: a\n\n",
        b"data: a\n",
        b"event: error\n",
        b"da",
        b"data: a\r",
        b"data: a\r\n\r",
        b": comment\n",
        b"\n",
    ],
)
@pytest.mark.parametrize(
    "event",
    [b"data: b\n\n", b"data: b\n", b"data: b\r\n\r\n", b"data: b\r\r", b"data: \n\n", b"data: b\n\n\n", b"data:\n\n"],
)
def test_a_read_that_is_one_whole_event_is_no_special_case(before: bytes, event: bytes) -> None:
    stream = before + event + b"data: c\n\n"
    assert read(b"data: first\n\n", before, event, b"data: c\n\n") == read(b"data: first\n\n" + stream)


def test_a_whole_event_in_one_read_is_capped_too() -> None:
    parser = SseParser(max_event_bytes=32, max_stream_bytes=100)
    assert parser.feed(b"data: a\n\n") == [ServerEvent(b"", b"a")]
    with pytest.raises(SseTooLarge):
        parser.feed(b"data: " + 40 * b"x" + b"\n\n")
