-- A stream has begun to answer: a probe closes its breaker with that. KEYS: breaker.
-- ARGV: probe (0 or 1), admitted_at, max_parallel. Returns: until, wait, opened, closed.
local probe, admitted_at, max_parallel = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3])
local now = clock()
local breaker = load(KEYS[1])
if not breaker.open or is_late(breaker, probe, admitted_at) then
    return result(breaker, now, false, false)
end
close(breaker, max_parallel)
save(KEYS[1], breaker)
return result(breaker, now, false, true)
