-- Forget a target's failures and cooldown, its quota group's too as far as this target goes. KEYS: breaker.
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'group_seen', text(clock()))
redis.call('EXPIRE', KEYS[1], RECORD_TTL_S)
return 1
