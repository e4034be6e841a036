-- Targets' states, untouched. KEYS: switches, then breaker, permits and group of each. ARGV: the targets.
-- Returns for each: state, until, wait, kind, failures, in flight, ramp, probing.
local now = clock()
local statuses = {}
for i, target in ipairs(ARGV) do
    local at = 3 * i - 1
    local breaker = load(KEYS[at])
    join_group(breaker, KEYS[at + 2])
    forget_lapsed_probe(breaker, now)
    local state, back_at, probing = 'closed', nil, false
    if redis.call('HEXISTS', KEYS[1], target) == 1 then
        state = 'disabled'
    elseif breaker.open and now < breaker['until'] then
        state, back_at = 'open', breaker['until']
    elseif breaker.open then
        state, probing = 'half_open', breaker.probe ~= ''
        if probing then
            back_at = breaker.probe_until
        end
    end
    statuses[i] = {
        state,
        back_at and text(back_at) or '',
        back_at and text(back_at - now) or '',
        breaker.open and breaker.kind or '',
        breaker.failures,
        redis.call('ZCOUNT', KEYS[at + 1], '(' .. text(now), '+inf'),
        breaker.ramp,
        probing and 1 or 0,
    }
end
return statuses
