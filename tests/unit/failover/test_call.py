from __future__ import annotations

from pipeline.failover.kinds import FailureKind
from pipeline.failover.target import Chain
from pipeline.failover.upstream import Delta
from tests.unit.failover.fakes import CONTEXT, World, chat_request, target
from tests.unit.failover.virtual_time import virtual

A, B = target("a"), target("b")
CHAIN = Chain("vlm", (A, B))


@virtual
async def test_a_good_answer_comes_from_the_first_target() -> None:
    world = World()
    answer = await world.caller.chat(CHAIN, chat_request(), CONTEXT)
    assert (answer.value.text, answer.target, answer.degraded) == ("Hello world", A.key, False)
    assert answer.usage.cost_usd == 0.01
    assert await world.in_flight(A, B) == 0


@virtual
async def test_keep_alive_comments_do_not_reset_the_first_content_timer() -> None:
    world = World()
    world.upstream.scripts["a"] = [[Delta(), 0.5] * 100]
    answer = await world.caller.chat(CHAIN, chat_request(), CONTEXT)
    assert answer.degraded
    assert world.upstream.closed[0] == ("a", 8.0)
    assert [t.kind for t in answer.tries] == [FailureKind.TTFT_TIMEOUT, None]
