"""The local provider: models that run on this host, behind the same port as those behind HTTP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from pipeline.domain.call import Usage
from pipeline.domain.document import says_something
from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest, Delta, EmbedRequest, Event, Finish, Reply, Vectors
from pipeline.providers.local.catalog import (
    CUES,
    EMBEDDING_DIM,
    EXTRACT,
    LAYOUT,
    LOCAL_MODELS,
    OCR,
    WORDLLAMA,
    default_pool_size,
)
from pipeline.providers.local.cues import cues
from pipeline.providers.local.embeddings import WordVectors
from pipeline.providers.local.extract import extract
from pipeline.providers.local.layout import canonical, completed
from pipeline.providers.local.pool import ChildPool

__all__ = ["NOTHING_TO_READ", "LocalUpstream"]

NOTHING_TO_READ = "BLANK"
"""What ``stages/prompts/describe.md`` has a model say of a page that shows nothing."""
_JOB_TIMEOUT_S = 150.0
# Below this much text the answer comes in a few milliseconds; more goes to a thread so that the loop stays free.
_INLINE_CHARS = 2_000


class LocalUpstream:
    """OCR in child processes; formatting, cues, extraction and vectors in this one.

    Nothing is loaded or started before the first call that needs it, and nothing is ever downloaded. Use one in one
    event loop.

    Args:
        pool_size: Pages read at once; half the processors unless given.
        threads: Processors one page may use; what the pool leaves to each child unless given.
        job_timeout_s: After this long a page's child is taken for hung and killed.
        pool: Children made elsewhere; the three before say nothing then.
    """

    def __init__(
        self,
        pool_size: int | None = None,
        threads: int | None = None,
        job_timeout_s: float = _JOB_TIMEOUT_S,
        pool: ChildPool | None = None,
    ) -> None:
        size = pool_size or default_pool_size()
        share = max(1, min(4, (os.cpu_count() or 1) // size))
        self._pool = pool or ChildPool(size, threads or share, job_timeout_s)
        self._vectors = WordVectors()

    async def stream(self, target: Target, request: ChatRequest) -> AsyncGenerator[Event, None]:
        """The whole text at once, then the finish.

        Raises:
            UpstreamFailure: The model is unknown, the request lacks what it reads, or its process died.
        """
        reply = await self.chat(target, request)
        if reply.text:
            yield Delta(text=reply.text)
        yield Finish(reply.finish_reason or "stop", reply.usage)

    async def chat(self, target: Target, request: ChatRequest) -> Reply:
        """The whole text; for a page without any, the word by which the describe prompt asks for that.

        Raises:
            UpstreamFailure: The model is unknown, the request lacks what it reads, or its process died.
        """
        model = LOCAL_MODELS.get(target.model)
        if model is None or not model.stages:
            raise _unknown(target.model, [name for name, m in LOCAL_MODELS.items() if m.stages])
        if request.stage not in model.stages:
            stages = ", ".join(sorted(model.stages))
            raise UpstreamFailure(
                FailureKind.INVALID_REQUEST, f"{target.model} serves the stage {stages}, not {request.stage!r}"
            )
        if request.json_schema is not None and not model.json_schema:
            raise UpstreamFailure(FailureKind.INVALID_REQUEST, f"{target.model} answers in text, not by a JSON schema")
        if target.model == OCR:
            text = await self._read_page(request.inputs)
        else:
            text = await _computed(_LIGHT[target.model], request.inputs)
        return Reply(text=text, finish_reason="stop", usage=Usage())

    async def embed(self, target: Target, request: EmbedRequest) -> Vectors:
        """Vectors of length 1.

        Raises:
            UpstreamFailure: The model is unknown, another width is asked for, or a text is empty.
        """
        if target.model != WORDLLAMA:
            raise _unknown(target.model, [WORDLLAMA])
        if request.dim != EMBEDDING_DIM:
            raise UpstreamFailure(
                FailureKind.INVALID_REQUEST, f"{WORDLLAMA} makes vectors of {EMBEDDING_DIM}, not of {request.dim!r}"
            )
        vectors, used = await asyncio.to_thread(self._vectors.embed, request.texts)
        return Vectors(vectors, Usage(tokens_in=used))

    async def close(self) -> None:
        """End the child processes."""
        await self._pool.close()

    async def _read_page(self, inputs: Mapping[str, Any]) -> str:
        image = inputs.get("image")
        if not isinstance(image, bytes) or not image:
            raise UpstreamFailure(FailureKind.INVALID_REQUEST, f"{OCR} reads inputs['image'], which is missing")
        answer = await self._pool.run({"text": _text(inputs, "text")}, image)
        read = str(answer["text"])
        if inputs.get("text_is_good"):
            read = completed(read, _text(inputs, "text"))
        # A dash or a rule that was taken for a letter is nothing to read either.
        return read if says_something(read) else NOTHING_TO_READ


def _unknown(model: str, known: list[str]) -> UpstreamFailure:
    return UpstreamFailure(FailureKind.NOT_FOUND, f"no local model {model!r} here; there are {', '.join(known)}")


def _text(inputs: Mapping[str, Any], name: str) -> str:
    return str(inputs.get(name) or "")


def _format(inputs: Mapping[str, Any]) -> str:
    return canonical(
        _text(inputs, "description"),
        _text(inputs, "text"),
        _text(inputs, "text_format") or "plain",
        _text(inputs, "title"),
    )


def _retrieve(inputs: Mapping[str, Any]) -> str:
    found = cues(
        _text(inputs, "chunk"),
        inputs.get("heading") or "",
        _text(inputs, "title"),
        _text(inputs, "before"),
        _text(inputs, "after"),
    )
    return json.dumps(found, ensure_ascii=False)


def _answer(inputs: Mapping[str, Any]) -> str:
    return extract(_text(inputs, "question"), inputs.get("passages") or ())


_LIGHT: Mapping[str, Callable[[Mapping[str, Any]], str]] = {LAYOUT: _format, CUES: _retrieve, EXTRACT: _answer}


async def _computed(work: Callable[[Mapping[str, Any]], str], inputs: Mapping[str, Any]) -> str:
    size = sum(len(value) for value in inputs.values() if isinstance(value, str))
    if size <= _INLINE_CHARS and not inputs.get("passages"):
        return work(inputs)
    return await asyncio.to_thread(work, inputs)
