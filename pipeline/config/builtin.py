"""What is known without being told: the local models, the hosted providers' key variables, the models' short names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = [
    "BUILTIN_PRESETS",
    "HOSTED",
    "LOCAL_MODELS",
    "ROLES",
    "ROLE_NEEDS",
    "LocalModel",
    "RoleNeeds",
    "qualified",
]

ROLES = ("vlm", "vlm_formatter", "retrieval_llm", "answer_llm", "embedder")


@dataclass(frozen=True, slots=True)
class RoleNeeds:
    """What every request of a role requires of a target."""

    modalities: frozenset[str] = frozenset({"text"})
    json_schema: bool = False


ROLE_NEEDS: Mapping[str, RoleNeeds] = MappingProxyType(
    {
        "vlm": RoleNeeds(modalities=frozenset({"text", "image"})),
        "vlm_formatter": RoleNeeds(),
        "retrieval_llm": RoleNeeds(json_schema=True),
        "answer_llm": RoleNeeds(),
    }
)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that runs in our own processes. It does one job, so it serves one role and states nothing else.

    What it can do is stated again here because this room lies below ``providers``; a test compares the two.

    Attributes:
        dim: Width of its vectors, for an embedder.
        context_window: Tokens that a text to embed may have.
    """

    role: str
    job: str
    modalities: frozenset[str] = frozenset({"text"})
    json_schema: bool = False
    dim: int | None = None
    context_window: int | None = None


LOCAL_MODELS: Mapping[str, LocalModel] = MappingProxyType(
    {
        "local/ocr": LocalModel("vlm", "reads text off page images", modalities=frozenset({"text", "image"})),
        "local/layout": LocalModel("vlm_formatter", "formats pages"),
        "local/cues": LocalModel("retrieval_llm", "picks retrieval cues", json_schema=True),
        "local/extract": LocalModel("answer_llm", "picks answers from passages"),
        "local/wordllama": LocalModel("embedder", "embeds texts", dim=256, context_window=512),
    }
)

BUILTIN_PRESETS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        model.role: (name.replace("/", "-") if model.role != "embedder" else "embedder", name)
        for name, model in LOCAL_MODELS.items()
    }
)
"""Role → (preset's name, model) of the chain of a role that is not configured."""


@dataclass(frozen=True, slots=True)
class HostedProvider:
    """A provider with one well-known endpoint.

    Attributes:
        key_env: The variable that its own tools read the key from.
        hosts: Its endpoint's hosts: a ``base_url`` there is the same endpoint as none.
        url_envs: Variables that point its own tools at another endpoint.
    """

    key_env: str
    hosts: frozenset[str] = frozenset()
    url_envs: tuple[str, ...] = field(default=())


HOSTED: Mapping[str, HostedProvider] = MappingProxyType(
    {
        "openai": HostedProvider(
            "OPENAI_API_KEY", frozenset({"api.openai.com"}), ("OPENAI_BASE_URL", "OPENAI_API_BASE")
        ),
        "anthropic": HostedProvider("ANTHROPIC_API_KEY", frozenset({"api.anthropic.com"})),
        "gemini": HostedProvider("GEMINI_API_KEY", frozenset({"generativelanguage.googleapis.com"})),
        "mistral": HostedProvider("MISTRAL_API_KEY", frozenset({"api.mistral.ai"})),
        "groq": HostedProvider("GROQ_API_KEY", frozenset({"api.groq.com"})),
        "deepseek": HostedProvider("DEEPSEEK_API_KEY", frozenset({"api.deepseek.com"})),
        "xai": HostedProvider("XAI_API_KEY", frozenset({"api.x.ai"})),
        "cohere": HostedProvider("COHERE_API_KEY", frozenset({"api.cohere.com"})),
        "openrouter": HostedProvider("OPENROUTER_API_KEY", frozenset({"openrouter.ai"})),
        "together_ai": HostedProvider("TOGETHERAI_API_KEY", frozenset({"api.together.xyz"})),
        "fireworks_ai": HostedProvider("FIREWORKS_AI_API_KEY", frozenset({"api.fireworks.ai"})),
        "voyage": HostedProvider("VOYAGE_API_KEY", frozenset({"api.voyageai.com"})),
    }
)

_SHORT_NAMES = (
    ("openai", ("gpt-", "chatgpt-", "o1", "o3", "o4", "text-embedding-")),
    ("anthropic", ("claude-",)),
    ("gemini", ("gemini-",)),
)


def qualified(model: str) -> str:
    """A model's name with its provider: ``claude-sonnet-5`` → ``anthropic/claude-sonnet-5``.

    Raises:
        ValueError: There is no provider in the name, and it is none of the well-known short names.
    """
    provider, slash, name = model.partition("/")
    if slash and provider and name:
        return model
    if not slash:
        for owner, starts in _SHORT_NAMES:
            if model.startswith(starts):
                return f"{owner}/{model}"
    msg = (
        f"is {model!r}, which names no provider; write provider/model, like 'openai/{name or provider}' "
        f"for any server that speaks OpenAI's protocol"
    )
    raise ValueError(msg)
