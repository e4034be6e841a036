from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest, Delta, EmbedRequest, Finish, Upstream
from pipeline.providers.local import (
    EMBEDDING_DIM,
    EMBEDDING_MAX_TOKENS,
    LOCAL_MODELS,
    LocalUpstream,
    count_tokens,
    default_max_parallel,
    default_pool_size,
)


@pytest.fixture
async def upstream() -> AsyncIterator[LocalUpstream]:
    made = LocalUpstream(pool_size=1)
    yield made
    await made.close()


def target(model: str) -> Target:
    return Target(key=f"{model}@host", preset=model, model=model)


def test_it_is_an_upstream(upstream: LocalUpstream) -> None:
    port: Upstream = upstream
    assert port is upstream


def test_the_command_lines_path_loads_no_model() -> None:
    heavy = "('numpy', 'cv2', 'onnxruntime', 'rapidocr', 'wordllama', 'tokenizers', 'PIL')"
    code = f"import sys, pipeline.providers.local as p; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_layout_answers_the_format_stage(upstream: LocalUpstream) -> None:
    request = ChatRequest("format", (), {"description": "", "text": "• a\n• b", "text_format": "plain", "title": None})
    events = [event async for event in upstream.stream(target("local/layout"), request)]
    assert isinstance(events[0], Delta)
    assert events[0].text == "- a\n- b"
    assert isinstance(events[1], Finish)
    assert events[1].reason == "stop"


async def test_an_empty_answer_is_a_finish_alone(upstream: LocalUpstream) -> None:
    request = ChatRequest("format", (), {"description": "", "text": "", "text_format": "plain"})
    events = [event async for event in upstream.stream(target("local/layout"), request)]
    assert [type(event) for event in events] == [Finish]


async def test_cues_answers_with_the_json_of_its_stage(upstream: LocalUpstream) -> None:
    inputs = {"chunk": "The pump is a part. " * 300, "heading": ["H"], "title": "T", "before": "", "after": ""}
    reply = await upstream.chat(
        target("local/cues"), ChatRequest("retrieve", (), inputs, json_schema={"type": "object"})
    )
    assert set(json.loads(reply.text)) == {"context", "keywords", "questions"}


async def test_extract_answers_the_answer_stage(upstream: LocalUpstream) -> None:
    inputs = {"question": "Who built it?", "passages": ["Ann built it."]}
    assert (await upstream.chat(target("local/extract"), ChatRequest("answer", (), inputs))).text == "Ann built it. [1]"


async def test_vectors_have_length_one_and_keep_the_order(upstream: LocalUpstream) -> None:
    request = EmbedRequest(("a pump of the engine", "漢字", "motor pump"), EMBEDDING_DIM)
    answer = await upstream.embed(target("local/wordllama"), request)
    vectors = [list(v) for v in answer.vectors]
    assert [len(v) for v in vectors] == [EMBEDDING_DIM] * 3
    assert all(abs(sum(x * x for x in v) - 1.0) < 1e-5 for v in vectors)
    assert sum(a * b for a, b in zip(vectors[0], vectors[2], strict=True)) > 0.4
    assert answer.usage is not None
    assert answer.usage.tokens_in == sum(count_tokens(text) for text in request.texts)


async def test_tokens_past_the_bound_do_not_count(upstream: LocalUpstream) -> None:
    head = "pump " * EMBEDDING_MAX_TOKENS
    request = EmbedRequest((head, head + "harbour " * 5000), EMBEDDING_DIM)
    first, second = (await upstream.embed(target("local/wordllama"), request)).vectors
    assert first == second


@pytest.mark.parametrize(
    ("model", "request_", "kind"),
    [
        ("local/nothing", ChatRequest("format", ()), "not_found"),
        ("local/wordllama", ChatRequest("format", ()), "not_found"),
        ("local/layout", ChatRequest("describe", ()), "invalid_request"),
        ("local/layout", ChatRequest("format", (), json_schema={}), "invalid_request"),
        ("local/ocr", ChatRequest("describe", (), {"text": "no image"}), "invalid_request"),
    ],
)
async def test_what_it_can_not_do_is_refused(
    upstream: LocalUpstream, model: str, request_: ChatRequest, kind: str
) -> None:
    with pytest.raises(UpstreamFailure) as refused:
        await upstream.chat(target(model), request_)
    assert refused.value.kind == kind


@pytest.mark.parametrize(
    ("model", "request_", "kind"),
    [
        ("local/layout", EmbedRequest(("x",), 256), "not_found"),
        ("local/wordllama", EmbedRequest(("x",), 64), "invalid_request"),
        ("local/wordllama", EmbedRequest(("x", " \n"), 256), "invalid_request"),
    ],
)
async def test_what_it_can_not_embed_is_refused(
    upstream: LocalUpstream, model: str, request_: EmbedRequest, kind: str
) -> None:
    with pytest.raises(UpstreamFailure) as refused:
        await upstream.embed(target(model), request_)
    assert refused.value.kind == kind


def test_only_what_takes_seconds_is_bounded() -> None:
    assert {m: default_max_parallel(m, 3) for m in LOCAL_MODELS} == {
        "local/ocr": 3,
        "local/layout": None,
        "local/cues": None,
        "local/extract": None,
        "local/wordllama": None,
    }
    assert default_max_parallel("local/ocr") == default_pool_size() >= 1
