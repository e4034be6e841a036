"""The failover core: which target a call goes to, who is busy, and when to stop. Pure; imports only ``domain``.

Read it in this order: ``kinds`` (the table of failures), ``target`` (targets, chains, contracts), ``chain`` (one call's
decisions), ``breaker`` (one target's), ``stream`` (reading an answer), ``walk`` and ``call`` (acting it out). The ports
to the outside are ``registry``, ``upstream`` and ``records``; ``memory`` is the registry of a single process.
"""
