-- Hold a permit (and the probe, where it is one) for longer. KEYS: breaker, permits. ARGV: token, permit's seconds.
-- Returns 1, or 0 when it had lapsed.
local token, ttl_s = ARGV[1], tonumber(ARGV[2])
local now = clock()
local lapses_at = redis.call('ZSCORE', KEYS[2], token)
if not lapses_at or tonumber(lapses_at) <= now then
    return 0
end
redis.call('ZADD', KEYS[2], text(now + ttl_s), token)
redis.call('EXPIRE', KEYS[2], math.ceil(ttl_s) * 2)
if redis.call('HGET', KEYS[1], 'probe') == token then
    redis.call('HSET', KEYS[1], 'probe_until', text(now + ttl_s))
end
return 1
