"""Where the demo happens: a home of its own inside ``TIDEGATE_HOME``, new for each run, with a configuration."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

from pipeline.domain.errors import UsageError
from pipeline.settings import Settings
from worker.embedded import Home, read_stack, stop_stack
from worker.outage.answers import VISION
from worker.stack import LOOPBACK

__all__ = ["PRIMARIES", "Times", "prepare"]

PRIMARIES = ("vision", "text")
"""The presets that the simulated server serves."""

_FOLDER = "outage"
_CONFIG = "tidegate.yaml"
_MARK = "# Written by tidegate demo --outage, anew at each run."
_GONE_S = 60.0

_TEMPLATE = """\
{mark}
failover:
  ttft_timeout_s: {ttft_s:g}     # silence
  timeout_s: {timeout_s:g}       # of calls that are not streamed
  cooldown_s: {cooldown_s:g}
  cooldown_max_s: {cooldown_max_s:g}
presets:
  vision: {{model: openai/{vision}, base_url: "{url}", modalities: [text, image], max_parallel: 2}}
  text:   {{model: openai/big-text, base_url: "{url}", max_parallel: {max_parallel}}}
  local-ocr:    {{model: local/ocr}}
  local-layout: {{model: local/layout}}
  local-cues:   {{model: local/cues}}
kb:
  vlm:           {{preset: vision, fallbacks: [local-ocr]}}
  vlm_formatter: {{preset: text, fallbacks: [local-layout]}}
  retrieval_llm: {{preset: text, fallbacks: [local-cues]}}
dispatch: {{period_s: 1}}
"""


class Times:
    """The configuration's times (seconds) and bound, short enough for somebody to watch."""

    ttft_s = 1.0
    timeout_s = 2.0
    cooldown_s = 2.0
    cooldown_max_s = 4.0
    max_parallel = 4


def prepare(settings: Settings, port: int) -> Settings:
    """Make the home, without what an earlier run left in it, and write the configuration.

    Returns:
        The settings of the demo's own installation: embedded services, nothing of the caller's.

    Raises:
        UsageError: The folder is in use, or somebody else's.
    """
    home = settings.home / _FOLDER
    _clear(home)
    Home(settings.home).prepare()
    Home(home).prepare()
    text = _TEMPLATE.format(
        mark=_MARK,
        vision=VISION,
        url=f"http://{LOOPBACK}:{port}/v1",
        ttft_s=Times.ttft_s,
        timeout_s=Times.timeout_s,
        cooldown_s=Times.cooldown_s,
        cooldown_max_s=Times.cooldown_max_s,
        max_parallel=Times.max_parallel,
    )
    Home(home).write(home / _CONFIG, text)
    return settings.apart(home, home / _CONFIG)


def _clear(home: Path) -> None:
    if not home.exists():
        return
    config = home / _CONFIG
    if any(home.iterdir()) and not (config.is_file() and config.read_text(encoding="utf-8").startswith(_MARK)):
        raise UsageError(f"{str(home)!r} holds something else than an earlier outage demo", "move it away")
    # One whose demo was killed is on its way down.
    deadline, pause = time.monotonic() + _GONE_S, threading.Event()
    while (stack := read_stack(home)) is not None and not stack.is_ready and time.monotonic() < deadline:
        pause.wait(0.2)
    if read_stack(home) is not None or Home(home).is_locked:
        raise UsageError(f"another outage demo runs under {str(home)!r}", "wait until it has ended")
    # What a dead supervisor left: its servers, and the stand-in for its sockets.
    stop_stack(home)
    shutil.rmtree(home)
