-- A stream has begun to answer: a probe closes its breaker with that. KEYS: breaker, permits, group.
-- ARGV: probe (0 or 1), admitted_at, max_parallel. Returns: until, wait, opened, closed.
local probe, admitted_at, max_parallel = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3])
local now = clock()
local breaker = load(KEYS[1])
local joined = join_group(breaker, KEYS[3])
local closed = breaker.open and not is_late(breaker, probe, admitted_at)
if closed then
    close(breaker, max_parallel)
end
if joined or closed then
    save(KEYS[1], breaker)
end
return result(breaker, now, false, closed)
