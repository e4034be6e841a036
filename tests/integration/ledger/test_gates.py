"""Models over HTTP that answer with what is no answer: the next one is asked, the rows say why, nothing is a chunk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont
from sqlalchemy import select

from pipeline.adapters.llm import FallbackLlm
from pipeline.adapters.vlm import FallbackVlm
from pipeline.clock import LoopClock
from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage
from pipeline.failover.call import Caller
from pipeline.failover.memory import MemoryRegistry
from pipeline.failover.target import Chain, Target
from pipeline.observe.metrics import Metrics
from pipeline.providers.base import Providers
from pipeline.providers.local import LocalUpstream
from pipeline.store.attempt_sink import PostgresAttemptSink
from pipeline.store.schema import Attempt, ChunkRow
from pipeline.store.session import Sessions
from tests.integration.ledger.harness import Harness
from tests.upstream.fake import FakeUpstream
from tests.upstream.fixtures import UpstreamFactory
from worker.events import EventLog

_PAGE = (
    "The sluice keeper writes the level into the book every quarter of an hour, rings the office when the wind turns, "
    "and locks the pump house before the lantern on the quay is lit."
)
_CIRCLE = "The gate opens at six and it closes at ten. " * 25


@pytest.fixture
def models(upstream: UpstreamFactory) -> FakeUpstream:
    return upstream()


@pytest.fixture
def over_http(harness: Harness, models: FakeUpstream, sessions: Sessions) -> Iterator[Harness]:
    """A harness whose two page roles are real chains: ``first`` and ``second``, ``writer`` and ``copyist``."""
    executor = ThreadPoolExecutor(2)
    providers = Providers({}, LocalUpstream(), time.time, lambda *_: None)
    sink = PostgresAttemptSink(sessions, executor)
    chance = Random(1).random
    caller = Caller(MemoryRegistry(time.time, chance), providers, sink, EventLog(Metrics()), LoopClock(), chance)

    def chain(role: str, *names: str) -> Chain:
        seeing = frozenset({"text", "image"})
        made = (Target(name, name, f"openai/{name}", models.base_url, "fast", modalities=seeing) for name in names)
        return Chain(role, tuple(made))

    harness.vlm = FallbackVlm(caller, chain("vlm", "first", "second"))  # type: ignore[assignment]
    harness.formatter = FallbackLlm(caller, chain("vlm_formatter", "writer", "copyist"))  # type: ignore[assignment]
    yield harness

    async def close() -> None:
        await asyncio.gather(providers.close(), sink.aclose())

    harness.submit(close()).result(30)
    executor.shutdown()


def scan(folder: Path, name: str) -> Path:
    image = Image.new("L", (600, 850), 255)
    ImageDraw.Draw(image).text((60, 100), name, font=ImageFont.load_default(48), fill=0)
    out = BytesIO()
    image.save(out, "PNG")
    path = folder / f"{name}.png"
    path.write_bytes(out.getvalue())
    return path


def tries(harness: Harness, run: int | None, stage: Stage) -> list[tuple[str, str, str | None, str]]:
    """A run's attempts of a stage: target, outcome, kind and what the row says."""
    query = select(Attempt).where(Attempt.run_id == run, Attempt.stage == stage.value).order_by(Attempt.id)
    with harness.sessions() as session:
        return [(one.target or "", one.outcome, one.kind, one.message or "") for one in session.scalars(query)]


def rejected_by(harness: Harness, run: int | None, stage: Stage) -> list[list[str]]:
    return [sorted(unit.rejected_by) for unit in harness.units(run, stage)]


def chunks(harness: Harness, run: int | None) -> str:
    with harness.sessions() as session:
        return "\n".join(session.scalars(select(ChunkRow.text).where(ChunkRow.run_id == run)))


@pytest.mark.parametrize(
    ("name", "act", "reason"),
    [
        ("refusal", {"text": "I'm sorry, but I can\u2019t see an image here."}, "declines the task"),
        ("elsewhere", {"text": "抱歉，我无法查看图片。"}, "declines the task"),
        ("circle", {"text": _CIRCLE}, "repeats itself"),
        ("empty", {"text": "  \n"}, "was empty"),
        ("nothing", {"text": "```\n\n```"}, "no letter and no digit"),
    ],
)
def test_what_is_no_description_is_asked_of_the_next_model(
    over_http: Harness, models: FakeUpstream, tmp_path: Path, name: str, act: dict[str, Any], reason: str
) -> None:
    models.behave("first", act)
    models.behave("second", {"text": _PAGE})
    (document,) = over_http.enqueue(scan(tmp_path, name))
    over_http.drive()

    assert over_http.run(document.run).state == RunState.DONE
    bad, good = tries(over_http, document.run, Stage.DESCRIBE)
    assert bad[:3] == ("first", "failed", "invalid_output")
    assert reason in bad[3]
    assert good[:3] == ("second", "ok", None)
    assert rejected_by(over_http, document.run, Stage.DESCRIBE) == [["first"]]
    found = chunks(over_http, document.run)
    assert "sluice keeper" in found
    assert not any(words in found for words in ("sorry", "抱歉", "gate opens", "```"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I can't assist with that request.", "declines the task"),
        ("# Summary\n\nA page about a keeper.", "lost"),
        (f"{_PAGE}\n\n{_CIRCLE}", "repeats itself"),
        ("***", "no letter and no digit"),
    ],
)
def test_what_is_no_markdown_of_the_page_is_asked_of_the_next_model(
    over_http: Harness, models: FakeUpstream, tmp_path: Path, answer: str, reason: str
) -> None:
    models.behave("writer", {"text": answer})
    note = tmp_path / "note.md"
    note.write_text(_PAGE)
    (document,) = over_http.enqueue(note)
    over_http.drive()

    assert over_http.run(document.run).state == RunState.DONE
    bad, good = tries(over_http, document.run, Stage.FORMAT)
    assert bad[:3] == ("writer", "failed", "invalid_output")
    assert reason in bad[3]
    assert good[:3] == ("copyist", "ok", None)
    assert rejected_by(over_http, document.run, Stage.FORMAT) == [["writer"]]
    found = chunks(over_http, document.run)
    assert "sluice keeper" in found
    assert not any(words in found for words in ("assist", "Summary", "gate opens"))


def test_a_page_that_quotes_a_refusal_is_taken(over_http: Harness, tmp_path: Path) -> None:
    note = tmp_path / "quoted.md"
    note.write_text("I'm sorry, but I can't see an image.\n\nThat is what the assistant said to the keeper.\n")
    (document,) = over_http.enqueue(note)
    over_http.drive()
    assert [one[:3] for one in tries(over_http, document.run, Stage.FORMAT)] == [("writer", "ok", None)]
    assert "can't see an image" in chunks(over_http, document.run)


def test_a_page_that_every_model_declines_fails_and_leaves_nothing(
    over_http: Harness, models: FakeUpstream, tmp_path: Path
) -> None:
    models.behave("first", {"text": "I can't see an image."})
    models.behave("second", {"text": "No image was provided. Please attach the page."})
    (document,) = over_http.enqueue(scan(tmp_path, "declined"))
    over_http.drive()

    run = over_http.run(document.run)
    assert run.state == RunState.FAILED
    assert "declines the task" in (run.failure_detail or "")
    assert [one[:3] for one in tries(over_http, document.run, Stage.DESCRIBE)] == [
        ("first", "failed", "invalid_output"),
        ("second", "failed", "invalid_output"),
        ("", "exhausted", None),
    ]
    assert rejected_by(over_http, document.run, Stage.DESCRIBE) == [["first", "second"]]
    assert chunks(over_http, document.run) == ""
