"""An outage on the real stack, by a shortened script: nothing is lost, little is wasted, and traffic comes back."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pipeline.settings import read_settings
from worker.cli.terminal import Terminal
from worker.embedded import read_stack
from worker.outage.place import Times
from worker.outage.primary import RETRY_AFTER_S
from worker.outage.run import Outage, Plan, run_outage
from worker.outage.script import Mode, Script

_SCRIPT = Script.of((Mode.HEALTHY, 2.0), (Mode.BUSY, 5.0), (Mode.HANGING, 6.0))
_SHEETS = 24


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> Outage:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_HOME", str(home))
        # Another installation's services, which the outage must not touch.
        patch.setenv("TIDEGATE_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
        patch.setenv("TIDEGATE_REDIS_URL", "redis://127.0.0.1:1/0")
        settings = read_settings()
    terminal = Terminal(as_json=True, out=io.StringIO())
    return run_outage(terminal, settings, Plan(_SCRIPT, sheets=_SHEETS, feed_s=_SCRIPT.recovers_s + 7))


def test_no_document_is_lost_and_nothing_goes_on_running(outage: Outage) -> None:
    documents = outage.to_json()["documents"]
    assert (documents["total"], documents["done"], documents["lost"]) == (_SHEETS, _SHEETS, 0)
    assert documents["degraded_units"] > 0
    assert read_stack(outage.home) is None
    assert not (outage.home / "stack.json").exists()


def test_every_switch_is_told_with_its_reason(outage: Outage) -> None:
    switches = outage.to_json()["switches"]
    kinds = {one["kind"] for one in switches}
    assert kinds & {"rate_limit", "overloaded"}
    assert kinds & {"ttft_timeout", "timeout"}
    assert {(one["from"], one["to"]) for one in switches} <= {("text", "local-layout"), ("text", "local-cues")}
    assert all(one["document"].startswith("gate-log-") for one in switches)


def test_the_attempts_say_what_the_primaries_own_log_says(outage: Outage) -> None:
    told = outage.to_json()
    assert told["server"]["agrees"]
    assert told["calls_wasted"] == told["server"]["refused"] + told["server"]["dropped"] > 0
    silent_s = [call.seconds for call in outage.served if call.outcome == "dropped" and call.seconds is not None]
    refused_s = [call.seconds for call in outage.served if call.outcome == "refused" and call.seconds is not None]
    # What a caller waited is what the server was silent for, and the way there and back.
    assert sum(silent_s) + sum(refused_s) == pytest.approx(told["seconds_lost"], abs=0.5 * told["calls_wasted"])


def test_probes_are_bounded_by_the_cooldowns(outage: Outage) -> None:
    busy, hanging = (phase for phase in _SCRIPT.phases if phase.mode is not Mode.HEALTHY)
    in_busy = [call for call in outage.served if _SCRIPT.phases[call.phase] is busy]
    in_hanging = [call for call in outage.served if _SCRIPT.phases[call.phase] is hanging]
    # Those that were admitted before the first failure was known, then one probe a cooldown.
    assert 0 < len(in_busy) <= Times.max_parallel + 1 + busy.seconds / RETRY_AFTER_S
    assert 0 < len(in_hanging) <= Times.max_parallel + 1 + hanging.seconds / (Times.cooldown_s * 0.9)
    assert outage.to_json()["calls_passed_over"] > outage.end.ledger.wasted


def test_traffic_is_back_on_the_primary_after_the_recovery(outage: Outage) -> None:
    told = outage.to_json()
    assert told["back_after_s"]["text"] <= Times.cooldown_max_s * 1.1 + 5
    text = next(one for one in told["targets"] if one["preset"] == "text")
    assert text["state"] == "closed"
    states = [one["state"] for one in text["states"]]
    assert states[0] == "closed"
    assert "open" in states
    recovered_at = told["phases"][-1]["began_at"]
    assert isinstance(recovered_at, datetime)
    later = [at for at in outage.end.ledger.answers["text"] if at > recovered_at + timedelta(seconds=1)]
    assert len(later) >= 3
    assert Path(told["home"]).name == "outage"
