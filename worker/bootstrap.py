"""The composition root: from the environment to what a process works with.

The light half is here: it makes no provider and imports no worker, and each part is imported where it is made, so
that a command starts fast. ``worker/calls.py`` adds what calls models, ``worker/ingester.py`` what carries out slices.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pipeline.domain.unit import Stage
from pipeline.observe.logging import configure_logging, get_logger, mask_secrets
from pipeline.settings import Settings
from worker.embedded import broker_url
from worker.services import Addresses, find_services

if TYPE_CHECKING:
    from celery import Celery
    from pydantic import SecretStr

    from pipeline.adapters.chains import Chains
    from pipeline.config.load import LoadedConfig
    from pipeline.config.model import Config
    from pipeline.dispatch import DispatchPolicy, Publish
    from pipeline.domain.space import EmbedSpace, Space
    from pipeline.endings import UnitPolicy
    from pipeline.failover.target import Chain
    from pipeline.recipe import Recipe
    from pipeline.reconcile import ReconcilePolicy
    from pipeline.store.blobs import BlobStore
    from pipeline.store.reader import Reads
    from pipeline.store.schema import Installation
    from pipeline.store.session import Engine, Sessions

__all__ = ["ROLE_OF_STAGE", "Container", "open_container"]

ROLE_OF_STAGE: Mapping[Stage, str] = {
    Stage.DESCRIBE: "vlm",
    Stage.FORMAT: "vlm_formatter",
    Stage.RETRIEVE: "retrieval_llm",
    Stage.EMBED: "embedder",
}
_MAY_HOLD_KEYS = frozenset({"extra_headers", "headers", "extra_body", "extra_query"})
COMMAND_CONNECTIONS = 3
"""Postgres connections of a command; see ``worker/processes.py`` for those of the processes, and the sum."""


class Container:
    """What every process shares. Each part is made when it is first asked for; nothing is read twice.

    Args:
        settings: The environment.
        connections: The most that this process holds to Postgres.
        name: What Postgres shows of it.
        missing_keys: ``warn`` for commands that call no model.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        connections: int = COMMAND_CONNECTIONS,
        name: str = "tidegate",
        missing_keys: Literal["refuse", "warn"] = "warn",
    ) -> None:
        self.settings = settings
        self._connections = connections
        self._name = name
        self._missing_keys = missing_keys
        self._former: dict[int, Chain | None] = {}

    # --- configuration ---

    @cached_property
    def loaded(self) -> LoadedConfig:
        """The configuration with its warnings.

        Raises:
            ConfigError: It can't be used.
        """
        from pipeline.config.load import load_config

        return load_config(self.settings, missing_keys=self._missing_keys)

    @property
    def config(self) -> Config:
        return self.loaded.config

    @cached_property
    def chains(self) -> Chains:
        """Every role's chain; the installation's key tells accounts apart, so Postgres is read."""
        return self._chains_of(self.config)

    @cached_property
    def secrets(self) -> dict[str, SecretStr]:
        """Keys by target key, those of former embedders included once they are asked for."""
        return dict(self.chains.secrets)

    @cached_property
    def stage_chains(self) -> dict[Stage, Chain]:
        """The chain of each stage that calls a model."""
        return {stage: self.chains.chain(role) for stage, role in ROLE_OF_STAGE.items()}

    def stages_of(self, target: str) -> list[Stage]:
        """The stages whose chains have a target, by its key."""
        return [
            stage
            for stage, chain in self.stage_chains.items()
            if any(one.key == target for one in (*chain.targets, *chain.content_policy_fallbacks))
        ]

    def allowed(self, collection: str, stage: Stage) -> frozenset[str] | None:
        """The presets that a collection allows for a stage; None for all."""
        return self.chains.allowed(ROLE_OF_STAGE[stage], collection)

    def budget_usd(self, collection: str) -> float | None:
        """What a collection may spend on model calls; None for no bound."""
        return self.config.collection(collection).budget_usd

    def recipe_for(self, collection: str) -> Recipe:
        """What documents of a collection are processed under, as the configuration stands now."""
        from pipeline.config.builtin import LOCAL_MODELS
        from pipeline.recipe import build_recipe
        from pipeline.stages.embed import USUAL_WINDOW

        own = self.config.collection(collection)
        named = self.config.kb.embedder
        embedder = self.chains.chain("embedder").primary
        # A chunk longer than the model reads would be cut silently.
        longest = min(own.chunk.max_tokens, embedder.context_window or own.chunk.max_tokens)
        return build_recipe(
            models={
                stage: self.chains.fingerprint(role) for stage, role in ROLE_OF_STAGE.items() if stage != Stage.EMBED
            },
            whens={Stage.DESCRIBE: own.describe, Stage.FORMAT: own.format, Stage.RETRIEVE: own.retrieve},
            space=self.space,
            limits=self.config.limits.to_domain(),
            page_long_side_px=self.config.parse.page_image_px,
            max_tokens=longest,
            overlap_tokens=min(own.chunk.overlap_tokens, longest // 2),
            on_page_failure=self.config.ingest.on_page_failure,
            token_factor=1.0 if named is None or named.model in LOCAL_MODELS else named.token_factor,
            max_input_tokens=embedder.context_window or max(USUAL_WINDOW, longest),
        )

    @property
    def space(self) -> EmbedSpace:
        """The configured embedding model and its width."""
        from pipeline.domain.space import EmbedSpace

        embedder = self.chains.chain("embedder").primary
        if embedder.dim is None:
            msg = "an embedder without a width passed the configuration's checks"
            raise RuntimeError(msg)
        return EmbedSpace(embedder.model, embedder.dim)

    def remember_embedder(self) -> None:
        """Keep with the configured space where its model is asked; a later configuration may name another.

        Raises:
            ServiceUnavailable: Postgres is away.
        """
        from pipeline.store.spaces import remember_embedder

        settings = self.config.kb.embedder
        written: dict[str, Any] = {}
        if settings is not None:
            written = settings.model_dump(mode="json", exclude_unset=True)
            # People put keys of gateways there; no row ever holds one.
            kept = {name: value for name, value in settings.params.items() if name not in _MAY_HOLD_KEYS}
            written |= {"params": kept} if "params" in written else {}
        remember_embedder(self.sessions, self.space.model, self.space.dim, written)

    def embedder_chain(self, space: Space) -> Chain | None:
        """Who embeds for a space, which the configuration may no longer name; None when nobody knows."""
        if (space.model, space.dim) == (self.space.model, self.space.dim):
            return self.chains.chain("embedder")
        if space.id not in self._former:
            self._former[space.id] = self._former_chain(space)
        return self._former[space.id]

    def _former_chain(self, space: Space) -> Chain | None:
        from pydantic import ValidationError

        from pipeline.config.model import EmbedderConfig
        from pipeline.domain.errors import ConfigError

        if space.embedder is None:
            return None
        try:
            settings = EmbedderConfig.model_validate(space.embedder) if space.embedder else None
            roles = self.config.kb.model_copy(update={"embedder": settings})
            found = self._chains_of(self.config.model_copy(update={"kb": roles}))
        except (ValidationError, ConfigError) as error:
            get_logger("config").warning("embedder.not_known", space=str(space), error=str(error))
            return None
        chain = found.chain("embedder")
        if (chain.primary.model, chain.primary.dim) != (space.model, space.dim):
            return None
        self.secrets.update(found.secrets)
        return chain

    def _chains_of(self, config: Config) -> Chains:
        """Build them, and have their keys masked in the log."""
        from pipeline.adapters.chains import build_chains

        found = build_chains(
            config,
            self.settings.secret,
            fingerprint_key=self.installation.fingerprint_key,
            hostname=socket.gethostname(),
        )
        mask_secrets(secret.get_secret_value() for secret in found.secrets.values())
        return found

    @property
    def unit_policy(self) -> UnitPolicy:
        from pipeline.endings import UnitPolicy

        unit = self.config.unit
        return UnitPolicy(
            lease_s=unit.lease_s,
            hard_deadline_s=unit.hard_deadline_s,
            max_lost=unit.max_lost,
            max_calls=unit.max_calls,
            drain_s=unit.drain_s,
        )

    @property
    def dispatch_policy(self) -> DispatchPolicy:
        from pipeline.dispatch import DispatchPolicy

        return DispatchPolicy(slice_units=self.config.unit.slice, window_per_slot=self.config.dispatch.window_per_slot)

    @property
    def reconcile_policy(self) -> ReconcilePolicy:
        from pipeline.reconcile import ReconcilePolicy
        from pipeline.store.retention import RetentionPolicy

        return ReconcilePolicy(
            unit=self.unit_policy,
            retention=RetentionPolicy(**self.config.retention.model_dump()),
            give_up_after_s=self.config.park.give_up_after_s,
        )

    # --- services ---

    @cached_property
    def addresses(self) -> Addresses:
        """Where the services are.

        Raises:
            ServiceUnavailable: Nowhere that we know.
        """
        return find_services(self.settings)

    @cached_property
    def engine(self) -> Engine:
        from pipeline.store.session import make_engine

        return make_engine(self.addresses.database_url, pool_size=self._connections, application_name=self._name)

    @cached_property
    def sessions(self) -> Sessions:
        from pipeline.store.session import make_sessions

        return make_sessions(self.engine)

    @cached_property
    def reads(self) -> Reads:
        """For what only looks, and is to answer before SQLAlchemy would be imported."""
        from pipeline.store.reader import make_reads

        return make_reads(self.addresses.database_url, application_name=self._name)

    @cached_property
    def installation(self) -> Installation:
        """Who this installation is.

        Raises:
            ServiceUnavailable: Postgres is away, or its schema is not the one that this version needs.
        """
        from pipeline.store.installation import read_installation
        from pipeline.store.revisions import check_schema

        check_schema(self.engine)
        with self.sessions() as session:
            return read_installation(session)

    @property
    def key_prefix(self) -> str:
        """Of every key in Redis."""
        return self.config.registry.prefix or f"tidegate:{self.installation.id}"

    @cached_property
    def blobs(self) -> BlobStore:
        from pipeline.store.blobs import open_blobs

        return open_blobs(self.addresses.blob_url)

    @cached_property
    def app(self) -> Celery:
        """The Celery app."""
        from worker.app import make_app

        return make_app(broker_url(self.addresses.redis_url), f"{self.key_prefix}:")

    @cached_property
    def publish(self) -> Publish:
        from worker.publish import SlicePublisher

        return SlicePublisher(self.app)

    # --- use cases that every process has ---

    def dispatch(self) -> int:
        """Fill the window; returns how many slices were handed out.

        Raises:
            ServiceUnavailable: Postgres or the broker is away; the beat does it when they are back.
        """
        from pipeline.dispatch import dispatch

        return dispatch(self.sessions, self.publish, self.dispatch_policy)

    # --- housekeeping ---

    def configure_logging(self) -> None:
        """Log as the environment says, with every secret that is known now masked; then say the warnings."""
        keys = (secret.get_secret_value() for secret in self.secrets.values())
        configure_logging(self.settings.log_level, self.settings.log_format, secrets=(*self.passwords(), *keys))
        log = get_logger("config")
        for line in self.loaded.warnings:
            log.warning("config.questioned", problem=line)

    def close(self) -> None:
        """Let go of every connection that was made."""
        made: dict[str, Any] = self.__dict__
        if "app" in made:
            self.app.close()
        if "engine" in made:
            self.engine.dispose()

    def passwords(self) -> Iterator[str]:
        """Those of the services."""
        from pipeline.store.postgres import read_address

        if password := read_address(self.addresses.database_url).arguments.get("password"):
            yield password
        if password := _password(self.addresses.redis_url):
            yield password
        if self.settings.flower_basic_auth is not None:
            yield self.settings.flower_basic_auth.get_secret_value()


@contextmanager
def open_container(settings: Settings, **options: Any) -> Iterator[Container]:
    """A container that is closed at the end of the block."""
    container = Container(settings, **options)
    try:
        yield container
    finally:
        container.close()


def _password(url: str) -> str | None:
    from urllib.parse import unquote, urlsplit

    password = urlsplit(url).password
    return unquote(password) if password else None
