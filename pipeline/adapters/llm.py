"""A language model role: its chain, walked by the failover core."""

from __future__ import annotations

from pipeline.domain.call import Answer
from pipeline.failover.call import Caller
from pipeline.failover.records import CallContext
from pipeline.failover.target import Chain
from pipeline.failover.upstream import ChatRequest, Reply
from pipeline.stages.ports import ReplyCheck

__all__ = ["FallbackLlm"]


class FallbackLlm:
    """Answers from the first target of a chain that gives a good answer (port ``ChatModel``)."""

    def __init__(self, caller: Caller, chain: Chain) -> None:
        self._caller = caller
        self._chain = chain

    async def chat(self, request: ChatRequest, context: CallContext, check: ReplyCheck | None = None) -> Answer[Reply]:
        """See ``ChatModel.chat``."""
        return await self._caller.chat(self._chain, request, context, check=check)
