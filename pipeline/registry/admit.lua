-- Leave for one call. KEYS: breaker, permits, group, switches.
-- ARGV: target, token, max_parallel (0: no bound), permit's seconds, seconds after which the switches are read again
-- (0: never). Returns: what, and its until, wait and kind.
local target, token = ARGV[1], ARGV[2]
local max_parallel, ttl_s, switches_ttl_s = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = clock()

if switches_ttl_s > 0 then
    local read_at = redis.call('HGET', KEYS[4], '')
    if not read_at then
        return {'unread'}
    end
    if tonumber(read_at) + switches_ttl_s <= now then
        -- This caller reads them; the others go on with what is known.
        redis.call('HSET', KEYS[4], '', text(now))
        return {'unread'}
    end
end
if redis.call('HEXISTS', KEYS[4], target) == 1 then
    return {'disabled'}
end

local breaker = load(KEYS[1])
local changed = join_group(breaker, KEYS[3])
if breaker.open and now < breaker['until'] then
    if changed then
        save(KEYS[1], breaker)
    end
    return {'cooling', text(breaker['until']), text(breaker['until'] - now), breaker.kind}
end
forget_lapsed_probe(breaker, now)
if breaker.open and breaker.probe ~= '' and breaker.probe ~= token then
    return {'probing', text(breaker.probe_until), text(breaker.probe_until - now), breaker.kind}
end

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now))
-- A reply that was lost is asked for again: the same token is the same permit.
if not redis.call('ZSCORE', KEYS[2], token) then
    local in_flight = redis.call('ZCARD', KEYS[2])
    if (max_parallel > 0 and in_flight >= max_parallel) or (breaker.ramp > 0 and in_flight >= breaker.ramp) then
        return {'full'}
    end
end
redis.call('ZADD', KEYS[2], text(now + ttl_s), token)
redis.call('EXPIRE', KEYS[2], math.ceil(ttl_s) * 2)
if breaker.open then
    breaker.probe = token
    breaker.probe_until = now + ttl_s
    save(KEYS[1], breaker)
    return {'probe', text(now)}
end
return {'open', text(now)}
