"""The configuration as types, with every default. ``config.example.yaml`` shows each key; a test keeps them together.

A value of ``None`` in a preset means "as ``failover`` says". All models are frozen and refuse unknown keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from pipeline.config.builtin import qualified
from pipeline.config.endpoint import checked_base_url
from pipeline.domain.document import Limits
from pipeline.domain.unit import When

__all__ = [
    "ChunkConfig",
    "CollectionConfig",
    "CollectionSettings",
    "Config",
    "DispatchConfig",
    "EmbedderConfig",
    "ErrorRule",
    "FailoverConfig",
    "FailureName",
    "IngestConfig",
    "KbConfig",
    "LimitsConfig",
    "ParkConfig",
    "ParseConfig",
    "Preset",
    "PriceConfig",
    "RegistryConfig",
    "ReplicaConfig",
    "RetentionConfig",
    "RoleConfig",
    "StageConfig",
    "TargetKeys",
    "UnitConfig",
]

# The upper bounds keep every value inside what Postgres' intervals and bigints hold, and days on this side of its
# earliest time.
Seconds = Annotated[float, Field(gt=0, le=1e9)]
SecondsOrNone = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=10**12)]
CountOrNone = Annotated[int, Field(ge=0, le=10**12)]
MAX_DAYS = 10**6
Modality = Literal["text", "image", "audio", "video"]
# The kinds that a rule may change. What the caller did, or our own bug, is held against no target by any rule.
# Written out because this room lies below failover; a test compares it with FailureKind.
FailureName = Literal[
    "connect",
    "timeout",
    "ttft_timeout",
    "rate_limit",
    "overloaded",
    "server_error",
    "auth",
    "not_found",
    "quota",
    "invalid_request",
    "context_overflow",
    "content_policy",
    "invalid_output",
    "partial_stream",
    "unknown",
]
RulePreset = Literal["standard", "permissive", "conservative"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIMITS = Limits()
# Tidegate sends these itself; a key or an address in `params` would also slip past every check on them.
_OWN_PARAMS = frozenset(
    {"model", "messages", "input", "stream", "stream_options", "response_format", "n"}
    | {"api_key", "api_base", "base_url", "timeout", "num_retries", "max_retries", "fallbacks"}
)


def _is(name: type) -> Any:
    return Discriminator(lambda value: name.__name__ if isinstance(value, name) else "other")


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class ErrorRule(Strict):
    """What one failure kind does, where it differs from the table.

    Attributes:
        cooldown: True for the ordinary one, False for none, or a fixed number of seconds.
        action: ``next`` target, or ``stop``.
    """

    cooldown: Annotated[Annotated[bool, Tag("bool")] | Annotated[SecondsOrNone, Tag("other")], _is(bool)] | None = None
    action: Literal["next", "stop"] | None = None


class FailoverConfig(Strict):
    ttft_timeout_s: Seconds = 8.0
    idle_timeout_s: Seconds = 120.0
    timeout_s: Seconds = 120.0
    cooldown_s: Seconds = 30.0
    cooldown_max_s: Seconds = 600.0
    config_cooldown_s: Seconds = 300.0
    allowed_fails: CountOrNone = 0
    deadline_s: Seconds = 300.0
    reserve_s: SecondsOrNone = 10.0
    max_attempts: Count = 6
    same_target_retries: CountOrNone = 0
    permit_wait_s: SecondsOrNone = 1.0
    permit_wait_max_s: SecondsOrNone = 60.0
    max_output_bytes: Count = 4_194_304
    on_error: Annotated[
        Annotated[RulePreset, Tag("str")] | Annotated[dict[FailureName, ErrorRule], Tag("other")], _is(str)
    ] = Field(default_factory=dict)


class RegistryConfig(Strict):
    """``prefix``: None for ``tidegate:<installation id>``."""

    timeout_s: Seconds = 0.25
    prefix: str | None = Field(default=None, min_length=1)


class PriceConfig(Strict):
    """US dollars per million tokens; None for what the provider's table says."""

    input_per_mtok: float | None = Field(default=None, ge=0)
    output_per_mtok: float | None = Field(default=None, ge=0)


class TargetKeys(Strict):
    """What any target may state, embedders too."""

    base_url: str | None = None
    api_key_env: str | None = None
    lane: Literal["auto", "fast", "litellm"] = "auto"
    max_parallel: Count | None = None
    on_full: Literal["wait", "next"] | None = None
    context_window: Count | None = None
    params: dict[str, Any] = Field(default_factory=dict, repr=False)
    price: PriceConfig = PriceConfig()
    quota_group: str | None = Field(default=None, min_length=1)
    timeout_s: Seconds | None = None
    cooldown_s: Seconds | None = None
    cooldown_max_s: Seconds | None = None
    config_cooldown_s: Seconds | None = None
    allowed_fails: CountOrNone | None = None
    same_target_retries: CountOrNone | None = None
    deadline_s: Seconds | None = None
    reserve_s: SecondsOrNone | None = None
    max_attempts: Count | None = None
    permit_wait_s: SecondsOrNone | None = None
    permit_wait_max_s: SecondsOrNone | None = None

    @field_validator("base_url")
    @classmethod
    def _endpoint(cls, url: str | None) -> str | None:
        return None if url is None else checked_base_url(url)

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, name: str | None) -> str | None:
        return None if name is None else _variable(name)

    @field_validator("params")
    @classmethod
    def _not_our_own(cls, params: dict[str, Any]) -> dict[str, Any]:
        own = sorted(_OWN_PARAMS & params.keys())
        if own:
            instead = "name the key's variable in api_key_env" if own[0] == "api_key" else "leave it out"
            msg = f"holds {own[0]!r}, which Tidegate sets itself; {instead}"
            raise ValueError(msg)
        return params


class Preset(TargetKeys):
    """A chat model at an endpoint, and what stands behind it.

    Attributes:
        fallbacks: Names of presets, in order; their own fallbacks are ignored.
        content_policy_fallbacks: Where a request goes that this chain refused on policy.
    """

    model: str = Field(min_length=1, description="name the model as litellm does, like openai/qwen3-14b")
    fallbacks: tuple[str, ...] = ()
    content_policy_fallbacks: tuple[str, ...] = ()
    modalities: frozenset[Modality] = frozenset({"text"})
    max_output_tokens: Count | None = None
    json_schema: bool = True
    tools: bool = True
    ttft_timeout_s: Seconds | None = None
    idle_timeout_s: Seconds | None = None
    max_output_bytes: Count | None = None

    @field_validator("model")
    @classmethod
    def _with_provider(cls, model: str) -> str:
        return qualified(model)


class RoleConfig(Preset):
    """A role's preset; what stands beside it tweaks the primary only (``params`` are added to the preset's)."""

    preset: str = Field(description="name the preset that this role's chain begins with")
    model: str = ""

    @field_validator("model")
    @classmethod
    def _with_provider(cls, model: str) -> str:
        return qualified(model)

    def applied_to(self, preset: Preset) -> Preset:
        """``preset`` with what this role says beside it."""
        tweaks = {name: getattr(self, name) for name in self.model_fields_set - {"preset"}}
        if "params" in tweaks:
            tweaks["params"] = {**preset.params, **self.params}
        return preset.model_copy(update=tweaks)


class ReplicaConfig(Strict):
    """Another endpoint of the same embedding model.

    It inherits everything but the quota group, and the key only for the same host.
    """

    base_url: str | None = None
    api_key_env: str | None = None
    model: str | None = None
    dim: int | None = None
    lane: Literal["auto", "fast", "litellm"] | None = None
    max_parallel: Count | None = None
    timeout_s: Seconds | None = None
    price: PriceConfig | None = None
    quota_group: str | None = Field(default=None, min_length=1)

    @field_validator("base_url")
    @classmethod
    def _endpoint(cls, url: str | None) -> str | None:
        return None if url is None else checked_base_url(url)

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, name: str | None) -> str | None:
        return None if name is None else _variable(name)

    @field_validator("model")
    @classmethod
    def _with_provider(cls, model: str | None) -> str | None:
        return None if model is None else qualified(model)


class EmbedderConfig(TargetKeys):
    """The embedding model, with replicas only behind it.

    Attributes:
        dim: Width of its vectors; above 4,000 no index holds them.
        token_factor: How many tokens it makes of what the built-in tokenizer makes one of, at most.
    """

    model: str = Field(min_length=1, description="name the embedding model as litellm does, like openai/bge-m3")
    dim: int = Field(ge=1, description="give the width of the model's vectors, like 1024")
    token_factor: float = Field(default=1.25, ge=1, le=8)
    fallbacks: tuple[ReplicaConfig, ...] = ()

    @field_validator("model")
    @classmethod
    def _with_provider(cls, model: str) -> str:
        return qualified(model)

    @field_validator("dim")
    @classmethod
    def _indexable(cls, dim: int) -> int:
        if dim > 4000:
            msg = f"is {dim}, above the 4000 that a vector index holds; choose a model, or a shortened output, below"
            raise ValueError(msg)
        return dim


class KbConfig(Strict):
    """The roles. One that is left out gets its built-in local model alone."""

    vlm: RoleConfig | None = None
    vlm_formatter: RoleConfig | None = None
    retrieval_llm: RoleConfig | None = None
    answer_llm: RoleConfig | None = None
    embedder: EmbedderConfig | None = None


class StageConfig(Strict):
    when: When = Field(description="say when the stage runs: always, auto or never")


class ParseConfig(Strict):
    """``page_image_px``: the long side of the page images that models see."""

    page_image_px: int = Field(default=1540, ge=256, le=8192)


class ChunkConfig(Strict):
    """Length of a chunk, and how much of the one before it repeats, in tokens of the embedding model."""

    max_tokens: int = Field(default=400, ge=32)
    overlap_tokens: int = Field(default=40, ge=0)

    def over(self, common: ChunkConfig) -> ChunkConfig:
        """``common`` with what this one states."""
        return common.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})


class CollectionConfig(Strict):
    """A collection's own settings; None for those at the top level.

    Attributes:
        budget_usd: Above it paid targets are skipped; free ones never are.
        allow_targets: Presets that its calls may use, for each chain that holds one of them.
    """

    budget_usd: float | None = Field(default=None, ge=0)
    allow_targets: tuple[str, ...] | None = None
    describe: StageConfig | None = None
    format: StageConfig | None = None
    retrieve: StageConfig | None = None
    chunk: ChunkConfig | None = None


class IngestConfig(Strict):
    on_page_failure: Literal["fail", "keep"] = "fail"


class UnitConfig(Strict):
    lease_s: float = Field(default=60.0, ge=3)
    hard_deadline_s: Seconds = 3600.0
    max_lost: Count = 3
    max_calls: Count = 20
    slice: Count = 8
    drain_s: Seconds = 8.0


class ParkConfig(Strict):
    give_up_after_s: Seconds = 86_400.0


class DispatchConfig(Strict):
    window_per_slot: Count = 2
    period_s: Seconds = 5.0


class RetentionConfig(Strict):
    attempts_days: int = Field(default=365, ge=1, le=MAX_DAYS)
    runs_kept: Count = 3
    page_images_days: int = Field(default=7, ge=0, le=MAX_DAYS)


class LimitsConfig(Strict):
    max_bytes: Count = _LIMITS.max_bytes
    max_pages: Count = _LIMITS.max_pages
    max_pixels: Count = _LIMITS.max_pixels
    parse_seconds: Count = _LIMITS.parse_seconds
    parse_memory_mb: int = Field(default=_LIMITS.parse_memory_mb, ge=256)
    max_inflate_ratio: Count = _LIMITS.max_inflate_ratio
    max_archive_bytes: Count = _LIMITS.max_archive_bytes
    max_members: Count = _LIMITS.max_members

    def to_domain(self) -> Limits:
        return Limits(**self.model_dump())


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """A collection as it is worked with: its own settings over the common ones."""

    name: str
    describe: When
    format: When
    retrieve: When
    chunk: ChunkConfig
    budget_usd: float | None
    allow_targets: tuple[str, ...] | None


class Config(Strict):
    """The whole configuration."""

    failover: FailoverConfig = FailoverConfig()
    registry: RegistryConfig = RegistryConfig()
    presets: dict[str, Preset] = Field(default_factory=dict)
    kb: KbConfig = KbConfig()
    collections: dict[str, CollectionConfig] = Field(default_factory=dict)
    parse: ParseConfig = ParseConfig()
    describe: StageConfig = StageConfig(when=When.AUTO)
    format: StageConfig = StageConfig(when=When.ALWAYS)
    retrieve: StageConfig = StageConfig(when=When.ALWAYS)
    chunk: ChunkConfig = ChunkConfig()
    ingest: IngestConfig = IngestConfig()
    unit: UnitConfig = UnitConfig()
    park: ParkConfig = ParkConfig()
    dispatch: DispatchConfig = DispatchConfig()
    retention: RetentionConfig = RetentionConfig()
    limits: LimitsConfig = LimitsConfig()

    def collection(self, name: str) -> CollectionSettings:
        """The settings of a collection, whether or not the configuration speaks of it."""
        own = self.collections.get(name, CollectionConfig())
        return CollectionSettings(
            name=name,
            describe=(own.describe or self.describe).when,
            format=(own.format or self.format).when,
            retrieve=(own.retrieve or self.retrieve).when,
            chunk=self.chunk if own.chunk is None else own.chunk.over(self.chunk),
            budget_usd=own.budget_usd,
            allow_targets=own.allow_targets,
        )


def _variable(name: str) -> str:
    # Someone who pasted the key itself must not see it again in an error, a log or a ticket.
    pasted = len(name) >= 24 and re.search(r"[0-9]", name) and re.search(r"[a-z]", name)
    if not _VARIABLE.fullmatch(name) or pasted:
        msg = "is no name of an environment variable; put the key into a variable, and that variable's name here"
        raise ValueError(msg)
    return name
