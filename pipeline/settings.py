"""What the environment says, read once by the composition root and passed down as values.

Only this module reads the environment. The variables that a configuration's ``api_key_env`` names are looked up in
the same snapshot (``Settings.secret``), so that a process sees one environment from start to end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipeline.domain.errors import ConfigError

__all__ = ["Settings", "read_settings"]

_DATABASE_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_REDIS_SCHEMES = ("redis", "rediss", "unix")
_HIDDEN = frozenset({"TIDEGATE_DATABASE_URL", "TIDEGATE_REDIS_URL", "TIDEGATE_FLOWER_BASIC_AUTH"})

# What names an installation's parts; another one beside it has its own.
_NAMED = frozenset(
    {"database_url", "redis_url", "blob_url", "model_name", "model_fallback_chain"}
    | {"flower_basic_auth", "metrics_port"}
)
_KEPT = frozenset({"TIDEGATE_LOG_LEVEL", "TIDEGATE_LOG_FORMAT"})


class Settings(BaseSettings):
    """The environment table. An empty variable counts as unset.

    Attributes:
        config: Path of the YAML config as it was given; None for ``./tidegate.yaml`` if present, else the built-ins.
        home: Embedded data, blobs, logs and sockets; absolute.
        database_url: Postgres; None for the embedded one.
        redis_url: Redis, for broker and registry; None for the embedded one.
        blob_url: ``file:///…`` or ``s3://bucket/prefix``; None for ``home``/blobs.
        model_name: The text roles' primary where there is no config file.
        model_fallback_chain: ``model,model,…`` behind it.
        flower_port: Where Flower listens.
        flower_address: Flower's address: a container's port can be published from 0.0.0.0 only.
        flower_basic_auth: ``user:password`` that Flower asks for.
        metrics_port: Where this process serves Prometheus metrics; None for nowhere.
        log_format: ``auto`` writes JSON where stderr is no terminal.
    """

    model_config = SettingsConfigDict(
        env_prefix="TIDEGATE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    config: Path | None = None
    home: Path = Path(".tidegate")
    database_url: SecretStr | None = None
    redis_url: SecretStr | None = None
    blob_url: str | None = None
    model_name: str | None = Field(default=None, validation_alias="MODEL_NAME")
    model_fallback_chain: str | None = Field(default=None, validation_alias="MODEL_FALLBACK_CHAIN")
    flower_port: int = Field(default=5555, ge=1, le=65535)
    flower_address: str = "127.0.0.1"
    flower_basic_auth: SecretStr | None = None
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"

    _environ: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("database_url")
    @classmethod
    def _postgres(cls, url: SecretStr | None) -> SecretStr | None:
        return _with_scheme(url, _DATABASE_SCHEMES, "postgresql://user:password@host:5432/database")

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, url: SecretStr | None) -> SecretStr | None:
        return _with_scheme(url, _REDIS_SCHEMES, "redis://host:6379/0")

    @field_validator("blob_url")
    @classmethod
    def _blob(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.username or parts.password:
            msg = "carries a user name or password; S3 credentials come from AWS's own variables"
            raise ValueError(msg)
        local = parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/")
        if not local and not (parts.scheme == "s3" and parts.netloc):
            msg = f"is {url!r}; it takes file:///absolute/path or s3://bucket/prefix"
            raise ValueError(msg)
        return url

    @field_validator("flower_basic_auth")
    @classmethod
    def _user_and_password(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not all(value.get_secret_value().partition(":")):
            msg = "takes user:password"
            raise ValueError(msg)
        return value

    def secret(self, variable: str) -> SecretStr | None:
        """The value of an environment variable that holds a key; None where it is unset or empty."""
        value = self._environ.get(variable, "").strip()
        return SecretStr(value) if value else None

    def has(self, variable: str) -> bool:
        """Whether an environment variable is set, and not to nothing."""
        return self.secret(variable) is not None

    def variable(self, name: str) -> str | None:
        """The value of an environment variable that holds no secret (a base URL); None where unset or empty."""
        return self._environ.get(name, "").strip() or None

    @property
    def environ(self) -> Mapping[str, str]:
        """The whole environment that this was read from, to hand on to child processes."""
        return self._environ

    def apart(self, home: Path, config: Path) -> Settings:
        """An installation of its own beside this one: embedded services, and nothing of what this one's name.

        Args:
            home: Its ``TIDEGATE_HOME``.
            config: Its configuration.
        """
        settings = self.model_copy(update={**dict.fromkeys(_NAMED), "home": home.absolute(), "config": config})
        own = {name.upper() for name in _NAMED if name.startswith("model_")}
        environ = {
            name: value
            for name, value in self._environ.items()
            if name not in own and (name in _KEPT or not name.startswith("TIDEGATE_"))
        }
        environ |= {"TIDEGATE_HOME": str(settings.home), "TIDEGATE_CONFIG": str(config)}
        settings._environ = MappingProxyType(environ)
        return settings

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each ``TIDEGATE_…`` variable that looks like a slip of the pen."""
        known = {f"TIDEGATE_{name.upper()}" for name in type(self).model_fields} | {"MODEL_NAME"}
        slips = sorted(name for name in self._environ if name.startswith("TIDEGATE_") and name not in known)
        near = {name: get_close_matches(name, known, n=1, cutoff=0.85) for name in slips}
        return tuple(f"{name} means nothing here; did you mean {close[0]}?" for name, close in near.items() if close)


def read_settings() -> Settings:
    """Read the environment.

    Raises:
        ConfigError: A variable's value is wrong; the fact names the variable, and never a password.
    """
    try:
        settings = Settings()
    except ValidationError as error:
        raise _explained(error) from None
    settings._environ = MappingProxyType(dict(os.environ))  # noqa: TID251 - the one place
    return settings


def _with_scheme(url: SecretStr | None, schemes: tuple[str, ...], example: str) -> SecretStr | None:
    if url is None:
        return None
    text = url.get_secret_value().strip()
    try:
        parts = urlsplit(text)
        scheme, _ = parts.scheme, parts.port
    except ValueError:
        msg = f"is no URL; it takes {example}"
        raise ValueError(msg) from None
    if scheme not in schemes:
        found = f"begins with {scheme + '://'!r}" if "://" in text else "is no URL"
        msg = f"{found}; it takes {example}"
        raise ValueError(msg)
    return SecretStr(text)


def _explained(error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False, include_input=True)[0]
    name = str(first["loc"][0]).upper()
    variable = name if name.startswith("MODEL_") else f"TIDEGATE_{name}"
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return ConfigError(f"{variable} {cause}")
    value = "" if variable in _HIDDEN else f" is {first.get('input')!r}:"
    return ConfigError(f"{variable}{value} {first['msg'][:1].lower()}{first['msg'][1:]}")
