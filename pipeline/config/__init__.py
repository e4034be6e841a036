"""The configuration: its types and defaults, how it is found and read, and everything that can be wrong with it."""

from __future__ import annotations

from pipeline.config.load import ConfigProblems, LoadedConfig, load_config, parse_config
from pipeline.config.model import CollectionSettings, Config

__all__ = ["CollectionSettings", "Config", "ConfigProblems", "LoadedConfig", "load_config", "parse_config"]
