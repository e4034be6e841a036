"""The recipe: everything that decides what a run's results look like.

Same bytes under the same recipe need no new run, and a unit whose stage part and input are unchanged is reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.domain.digest import digest_of
from pipeline.domain.document import Limits
from pipeline.domain.space import EmbedSpace
from pipeline.domain.unit import Stage, When
from pipeline.stages import chunk, describe, embed, parse, retrieve
from pipeline.stages import format as format_stage
from pipeline.stages.prompts import prompt_digest

__all__ = ["Recipe", "build_recipe", "stage_digest", "when_of"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """``body`` is what a run's row keeps; ``digest`` tells whether two recipes are the same."""

    body: dict[str, Any]

    @property
    def digest(self) -> str:
        return digest_of(self.body)


def build_recipe(
    *,
    models: Mapping[Stage, Mapping[str, Any]],
    whens: Mapping[Stage, When],
    space: EmbedSpace,
    limits: Limits,
    page_long_side_px: int,
    max_tokens: int,
    overlap_tokens: int,
    on_page_failure: str,
    token_factor: float = 1.0,
    max_input_tokens: int | None = None,
) -> Recipe:
    """Put a recipe together.

    Args:
        models: The primary model and its params for each model stage (fallbacks don't change what is wanted).
        max_tokens: A chunk's greatest length as the embedding model counts.
        on_page_failure: ``fail`` or ``keep``.
        token_factor: What the tokens that are counted are multiplied by, where the model's own can't be.
        max_input_tokens: Most that the embedding model takes at once; None for no bound.
    """
    stages: dict[str, dict[str, Any]] = {
        Stage.PARSE.value: {
            "version": parse.VERSION,
            "long_side_px": page_long_side_px,
            "images": "all" if whens[Stage.DESCRIBE] is When.ALWAYS else "needed",
            "max_pages": limits.max_pages,
            "max_pixels": limits.max_pixels,
        },
        Stage.DESCRIBE.value: {"version": describe.VERSION, "prompt": prompt_digest("describe")},
        Stage.FORMAT.value: {"version": format_stage.VERSION, "prompt": prompt_digest("format")},
        Stage.CHUNK.value: {
            "version": chunk.VERSION,
            "max_tokens": max_tokens,
            "overlap_tokens": overlap_tokens,
            "token_factor": token_factor,
        },
        Stage.RETRIEVE.value: {"version": retrieve.VERSION, "prompt": prompt_digest("retrieve")},
        Stage.EMBED.value: {
            "version": embed.VERSION,
            "model": space.model,
            "dim": space.dim,
            "max_input_tokens": max_input_tokens,
        },
    }
    for stage in (Stage.DESCRIBE, Stage.FORMAT, Stage.RETRIEVE):
        stages[stage.value] |= {"when": whens[stage].value, "model": dict(models[stage])}
    return Recipe({"stages": stages, "on_page_failure": on_page_failure})


def when_of(recipe: Mapping[str, Any], stage: Stage) -> When:
    """Whether a run's recipe wants a stage."""
    return When(recipe["stages"][stage.value].get("when", When.ALWAYS))


def stage_digest(recipe: Mapping[str, Any], stage: Stage, *content: Any) -> str:
    """The digest of a unit's input: what the stage is, and what it is given.

    ``when`` is left out: whether a stage runs does not change what it makes of an input.
    """
    identity = {key: value for key, value in recipe["stages"][stage.value].items() if key != "when"}
    return digest_of(stage.value, identity, *content)
