"""Search over real Postgres: words in every script, vectors by the space's index, and only what is live."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from sqlalchemy import text

from pipeline.domain.errors import ConfigError, UsageError
from pipeline.search import Mode, search
from pipeline.store.session import Sessions
from pipeline.store.spaces import ensure_space
from tests.integration.seed import Seed


@pytest.fixture
def seed(sessions: Sessions) -> Seed:
    return Seed(sessions)


def _texts(sessions: Sessions, query: str, **options: Any) -> list[str]:
    return [hit.chunk.text for hit in search(sessions, query, mode=Mode.TEXT, **options).hits]


def test_words_are_found_by_their_stems_and_the_fullest_match_comes_first(seed: Seed, sessions: Sessions) -> None:
    seed.published("/a", "The tide gates were opened", "A gate for the garden", "Nothing of interest")

    assert _texts(sessions, "when is the tide gate open?") == ["The tide gates were opened", "A gate for the garden"]


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("東京都の水道料金は毎月変わります", "水道料金"),
        ("這是一份關於潮汐的報告", "潮汐"),
        ("值班人员记录水\n位。", "水位"),
        ("關閉水 閘後報告", "水閘"),
        ("適用除外の手続き", "除外"),
        ("적립 제외 대상 안내", "제외 대상"),
        ("적립 제외 대상 안내", "제외대상"),
        ("العَرَبِيَّة الفصحى", "العربية"),
        ("ราคาน้ำมันวันนี้", "น้ำมัน"),
        ("Die Straße ist gesperrt", "STRASSE"),
        ("Les données ont été publiées", "données publiées"),
        ("الخطوط العربية جميلة", "العربية"),
        ("हिन्दी में लिखा", "हिन्दी"),
        ("invoice SPARSE-2024-INV-1234", "sparse-2024-inv-1234"),
        ("The Who live at Leeds", "the who"),
    ],
)
def test_words_of_every_script_are_found(seed: Seed, sessions: Sessions, stored: str, query: str) -> None:
    seed.published("/other", "Completely unrelated words", "別の話題")
    seed.published("/a", stored)

    assert _texts(sessions, query) == [stored]


@pytest.mark.parametrize("query", ["'; drop table chunk; --", "a & | ! <-> (b", "\\", "%_%", ":*", "\x00", "☃"])
def test_odd_queries_find_nothing_and_break_nothing(seed: Seed, sessions: Sessions, query: str) -> None:
    seed.published("/a", "plain words")
    assert _texts(sessions, query) == []


def test_only_the_live_generation_is_found(seed: Seed, sessions: Sessions) -> None:
    document = seed.document("/a")
    for state, words in (("done", "old tide"), ("failed", "failed tide")):
        seed.chunk(seed.run(document, state), 1, words)
    seed.chunk(seed.run(document, "done", live=True), 1, "new tide")
    seed.chunk(seed.run(document, "running"), 1, "coming tide")

    assert _texts(sessions, "tide") == ["new tide"]


def test_a_collection_narrows_the_search_and_an_unknown_one_is_refused(seed: Seed, sessions: Sessions) -> None:
    seed.published("/a", "tide one", collection="sea")
    seed.published("/a", "tide two", collection="land")

    assert len(_texts(sessions, "tide")) == 2
    assert _texts(sessions, "tide", collection="sea") == ["tide one"]
    with pytest.raises(UsageError, match="'lake'"):
        _texts(sessions, "tide", collection="lake")


def test_vectors_are_found_by_angle(seed: Seed, sessions: Sessions) -> None:
    space = ensure_space(sessions, "test", 3)
    run = seed.run(seed.document("/a"), "done", live=True)
    for ordinal, vector in enumerate([(1, 0, 0), (0.6, 0.8, 0), (0, 1, 0)], 1):
        seed.chunk(run, ordinal, f"chunk {ordinal}", vector, space)

    result = search(sessions, "q", mode=Mode.VECTOR, embed=lambda _: [0.0, 2.0, 0.0])

    assert [hit.chunk.ordinal for hit in result.hits] == [3, 2, 1]
    assert [round(hit.score, 6) for hit in result.hits] == [1.0, 0.8, 0.0]


def test_a_hybrid_search_prefers_what_both_ways_find(seed: Seed, sessions: Sessions) -> None:
    space = ensure_space(sessions, "test", 3)
    run = seed.run(seed.document("/a"), "done", live=True)
    seed.chunk(run, 1, "tide tide tide", (0, 0, 1), space)
    seed.chunk(run, 2, "high tide at noon", (0.9, 0.1, 0), space)
    seed.chunk(run, 3, "the sea rises", (1, 0, 0), space)
    seed.chunk(run, 4, "water", (0.5, 0.5, 0), space)

    result = search(sessions, "tide", embed=lambda _: [1, 0, 0])

    assert {hit.chunk.ordinal for hit in result.hits} == {1, 2, 3, 4}
    assert result.hits[0].chunk.ordinal == 2
    assert result.notes == []


def test_a_query_without_a_vector_searches_words_and_says_so(seed: Seed, sessions: Sessions) -> None:
    space = ensure_space(sessions, "test", 3)
    seed.chunk(seed.run(seed.document("/a"), "done", live=True), 1, "tide", (1, 0, 0), space)

    result = search(sessions, "tide", embed=lambda _: None)

    assert len(result.hits) == 1
    assert result.notes == ["the query could not be embedded by test; only words were searched there"]
    with pytest.raises(UsageError, match="--mode text"):
        search(sessions, "tide", mode=Mode.VECTOR, embed=lambda _: None)


def test_a_hit_tells_where_it_is_from_and_who_made_it(seed: Seed, sessions: Sessions) -> None:
    run = seed.run(seed.document("/docs/a.pdf"), "done", live=True)
    seed.units(run, "describe", [1], answered_by="vision", degraded=False)
    seed.units(run, "describe", [2], answered_by="local/ocr@host", degraded=True)
    seed.units(run, "format", [1, 2], answered_by="text")
    seed.units(run, "retrieve", [1], answered_by="cues")
    seed.units(run, "embed", [1, 2], answered_by="bge")
    seed.chunk(run, 1, "tide", page_from=1, page_to=2, heading=["Sea", "Tides"], context="About tides.")

    (hit,) = [hit.to_json() for hit in search(sessions, "tides", mode=Mode.TEXT).hits]

    assert (hit["path"], hit["chunk"], hit["pages"], hit["heading"]) == ("/docs/a.pdf", 1, [1, 2], "Sea > Tides")
    assert hit["degraded"] is True
    assert hit["models"] == {
        "describe": "local/ocr@host, vision",
        "format": "text",
        "retrieve": "cues",
        "embed": "bge",
    }


def test_a_chunks_id_is_its_texts_and_outlives_its_generation(seed: Seed, sessions: Sessions) -> None:
    document = seed.document("/a")
    seed.chunk(seed.run(document, "done", live=True), 1, "tide", heading=["Sea"])
    (before,) = [hit.to_json()["id"] for hit in search(sessions, "tide", mode=Mode.TEXT).hits]
    run = seed.run(document, "done", live=True)
    seed.chunk(run, 1, "gate")
    seed.chunk(run, 2, "tide", heading=["Sea"])
    seed.chunk(run, 3, "tide", heading=["Sea"])
    seed.chunk(run, 4, "tide", heading=["Land"])

    ids = {hit.chunk.ordinal: hit.to_json()["id"] for hit in search(sessions, "tide", mode=Mode.TEXT).hits}

    assert ids[2] == before
    assert len(set(ids.values())) == 3


@pytest.mark.parametrize(("query", "options"), [(" ", {}), ("x", {"k": 0}), ("x", {"k": 5000})])
def test_an_odd_request_is_refused(sessions: Sessions, query: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        search(sessions, query, mode=Mode.TEXT, **options)


@pytest.mark.parametrize("dim", [3, 2500])
def test_a_space_is_made_once_with_an_index_that_serves_its_queries(sessions: Sessions, dim: int) -> None:
    first = ensure_space(sessions, "m", dim)
    assert ensure_space(sessions, "m", dim) == first
    with sessions() as session:
        definition = session.scalar(
            text("select indexdef from pg_indexes where indexname = :name"), {"name": f"hnsw_space_{first}"}
        )
    assert ("halfvec" in definition) is (dim > 2000)


def test_a_space_too_wide_for_any_index_is_refused(sessions: Sessions) -> None:
    with pytest.raises(ConfigError, match="4001"):
        ensure_space(sessions, "m", 4001)


def test_a_small_collection_is_searched_whole_beside_a_large_one(seed: Seed, sessions: Sessions) -> None:
    space, rng = ensure_space(sessions, "test", 3), random.Random(7)

    def vector() -> list[float]:
        raw = [rng.gauss(0, 1) for _ in range(3)]
        return [number / math.hypot(*raw) for number in raw]

    for collection, chunks in (("large", 100), ("small", 20)):
        run = seed.run(seed.document("/a", collection=collection), "done", live=True)
        for ordinal in range(1, chunks + 1):
            seed.chunk(run, ordinal, f"{collection} {ordinal}", vector(), space)

    result = search(sessions, "q", collection="small", k=30, mode=Mode.VECTOR, embed=lambda _: vector())

    assert len(result.hits) == 20
    assert all(hit.chunk.text.startswith("small") for hit in result.hits)
    assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)
