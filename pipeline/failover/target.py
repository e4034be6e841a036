"""Targets, chains, and what a request requires of a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.failover.kinds import STANDARD_RULES, Rules

__all__ = ["CallPolicy", "Chain", "CooldownPolicy", "Needs", "Price", "Target", "Times"]


@dataclass(frozen=True, slots=True)
class Times:
    """A target's timers, in seconds. TTFT and idle hold for streams, ``timeout_s`` for the other calls."""

    ttft_timeout_s: float = 8.0
    idle_timeout_s: float = 120.0
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class CooldownPolicy:
    """How long a failing target is skipped (seconds).

    Attributes:
        allowed_fails: Forgivable failures inside ``fail_window_s`` that set no cooldown.
        streak: ``invalid_output`` answers in a row, over different inputs, that cool the target.
        jitter: Share by which a computed cooldown is spread either way.
    """

    cooldown_s: float = 30.0
    cooldown_max_s: float = 600.0
    config_cooldown_s: float = 300.0
    allowed_fails: int = 0
    fail_window_s: float = 60.0
    streak: int = 5
    jitter: float = 0.1


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; None where the provider's own table is used."""

    input_per_mtok: float | None = None
    output_per_mtok: float | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A model at an endpoint under an account. It holds no secret: providers look the key up by ``key``.

    Attributes:
        key: ``model@endpoint``, with ``#fingerprint`` when two accounts share both.
        preset: The name people gave it.
        model: In litellm's naming, the provider first (``openai/qwen3-14b``, ``local/ocr``).
        lane: ``auto``, ``fast`` or ``litellm``.
        context_window: Tokens of input and output together; None when it was not stated (nothing is checked then).
        max_parallel: Calls at once over the whole fleet; None for no bound.
        quota_group: Targets of one group cool together on ``rate_limit`` and ``quota``.
        params: Sent as they are. Not in the repr: people put keys of gateways into ``extra_headers``.
        dim: Width of the vectors, for embedders.
    """

    key: str
    preset: str
    model: str
    base_url: str | None = None
    lane: str = "auto"
    modalities: frozenset[str] = frozenset({"text"})
    context_window: int | None = None
    max_output_tokens: int | None = None
    json_schema: bool = True
    tools: bool = True
    max_parallel: int | None = None
    on_full: str | None = None
    quota_group: str | None = None
    times: Times = Times()
    cooldown: CooldownPolicy = CooldownPolicy()
    same_target_retries: int = 0
    rules: Rules = field(default_factory=lambda: STANDARD_RULES, hash=False, compare=False, repr=False)
    params: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    price: Price = Price()
    dim: int | None = None

    def __post_init__(self) -> None:
        # No registry could keep to it: one call at a time is the least that calls anybody.
        if self.max_parallel is not None and self.max_parallel < 1:
            msg = f"max_parallel is {self.max_parallel}, which should be 1 or more, or None for no bound"
            raise ValueError(msg)

    @property
    def provider(self) -> str:
        """``openai``, ``anthropic``, ``local``…: what stands before the model's first slash."""
        return self.model.partition("/")[0]

    @property
    def is_local(self) -> bool:
        return self.provider == "local"

    @property
    def is_listed(self) -> bool:
        """Whether a provider's table may know its price; that of a model on a server of one's own is in none."""
        return self.base_url is None or self.provider != "openai"

    @property
    def is_free(self) -> bool:
        """Whether it is known to cost nothing."""
        rates = (self.price.input_per_mtok, self.price.output_per_mtok)
        return self.is_local or all(rate == 0 or (rate is None and not self.is_listed) for rate in rates)


@dataclass(frozen=True, slots=True)
class Needs:
    """What one request requires of a target (its contract)."""

    modalities: frozenset[str] = frozenset({"text"})
    json_schema: bool = False
    tools: bool = False
    tokens_in: int = 0
    tokens_out: int = 0

    def unmet_by(self, target: Target) -> str | None:
        """The first part of the contract that ``target`` does not meet, in words; None when it meets all."""
        missing = sorted(self.modalities - target.modalities)
        if missing:
            return f"no {missing[0]} input"
        if self.json_schema and not target.json_schema:
            return "no JSON schema"
        if self.tools and not target.tools:
            return "no tools"
        if target.max_output_tokens is not None and self.tokens_out > target.max_output_tokens:
            return f"output of {self.tokens_out} tokens above its {target.max_output_tokens}"
        if target.context_window is not None and self.tokens_in + self.tokens_out > target.context_window:
            return f"{self.tokens_in + self.tokens_out} tokens above its window of {target.context_window}"
        return None


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """The budget of one call over all its targets (seconds, counts, bytes); fallbacks never reset it.

    Attributes:
        reserve_s: Kept back for the last target: one that is not the last gets the time left minus this.
        interactive: Somebody waits: a full target is passed over after ``permit_wait_s`` and content policy stops.
            Ingestion waits for a permit up to ``permit_wait_max_s``.
        allow_empty: An empty answer is an answer.
        wait_for_recovery: When everybody is cooling, wait for the soonest recovery that the deadline leaves room for.
    """

    deadline_s: float = 300.0
    reserve_s: float = 10.0
    max_attempts: int = 6
    permit_wait_s: float = 1.0
    permit_wait_max_s: float = 60.0
    max_output_bytes: int = 4_194_304
    interactive: bool = False
    allow_empty: bool = False
    wait_for_recovery: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """A role's targets in priority order."""

    role: str
    targets: tuple[Target, ...]
    policy: CallPolicy = CallPolicy()
    content_policy_fallbacks: tuple[Target, ...] = ()

    @property
    def primary(self) -> Target:
        return self.targets[0]
