"""``tidegate demo --outage``: models that go busy, hang and recover on a clock, and what the failover makes of it.

Nothing of Tidegate is stood in for: the stack, the configuration, the registry and the attempts are those of every
installation. Only the primaries are simulated, by a small server of their own, and what they answer is worked out.
"""
