-- A call has ended: its permit goes back, and its end counts for or against the target.
-- KEYS: breaker, permits, group. ARGV, in order, as named below. Returns: until, wait, opened, closed.
local token, probe, admitted_at, max_parallel = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4])
local verdict, kind, cooldown, cools_group = ARGV[5], ARGV[6], ARGV[7], ARGV[8] == '1'
local digest, streak_length = ARGV[9], tonumber(ARGV[10])
local allowed_fails, fail_window_s = tonumber(ARGV[11]), tonumber(ARGV[12])
-- fixed_s is '' where the length depends on the failures in a row.
local fixed_s, cooldown_s, cooldown_max_s, factor = ARGV[13], tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
local now = clock()

redis.call('ZREM', KEYS[2], token)
local breaker = load(KEYS[1])
join_group(breaker, KEYS[3])
if breaker.probe == token then
    breaker.probe = ''
end
forget_lapsed_probe(breaker, now)

local function succeeded()
    if breaker.open and is_late(breaker, probe, admitted_at) then
        return result(breaker, now, false, false)
    end
    local closed = breaker.open
    if closed then
        close(breaker, max_parallel)
    end
    if breaker.ramp > 0 then
        breaker.ramp = ramp(breaker.ramp + 1, max_parallel)
    end
    breaker.failures, breaker.kind, breaker.streak = 0, '', ''
    return result(breaker, now, false, closed)
end

-- The last different inputs, this one at the end; returns how many they are.
local function lengthen_streak()
    local inputs = {}
    for seen in string.gmatch(breaker.streak, '%S+') do
        if seen ~= digest then
            inputs[#inputs + 1] = seen
        end
    end
    inputs[#inputs + 1] = digest
    while #inputs > streak_length do
        table.remove(inputs, 1)
    end
    breaker.streak = table.concat(inputs, ' ')
    return #inputs
end

local function is_forgiven()
    if breaker.open or allowed_fails == 0 then
        return false
    end
    local times = {}
    for at in string.gmatch(breaker.forgiven, '%S+') do
        if tonumber(at) > now - fail_window_s then
            times[#times + 1] = at
        end
    end
    times[#times + 1] = text(now)
    if #times > allowed_fails then
        return false
    end
    breaker.forgiven = table.concat(times, ' ')
    return true
end

local function failed()
    if cooldown == 'none' then
        return result(breaker, now, false, false)
    end
    if cooldown == 'streak' and lengthen_streak() < streak_length then
        return result(breaker, now, false, false)
    end
    if is_forgiven() then
        return result(breaker, now, false, false)
    end
    -- Calls that were under way together fail together: that is one failure, not one for each of them.
    local late = breaker.open and is_late(breaker, probe, admitted_at)
    if not late then
        breaker.failures = breaker.failures + 1
        breaker.opened_at = now
    end
    local length_s = tonumber(fixed_s)
    if not length_s then
        local doubled_s = cooldown_s * 2 ^ math.min(breaker.failures - 1, 32)
        length_s = math.min(doubled_s, cooldown_max_s) * factor
    end
    local opened = now + length_s > breaker['until']
    if opened then
        breaker['until'] = now + length_s
        breaker.kind = kind
    end
    breaker.open = true
    breaker.ramp = 0
    breaker.forgiven = ''
    if cools_group then
        breaker.group_seen = now
        if KEYS[3] ~= '' then
            local standing = tonumber(redis.call('HGET', KEYS[3], 'until') or '0')
            local group_until = math.max(standing, breaker['until'])
            redis.call('HSET', KEYS[3], 'opened_at', text(now), 'until', text(group_until), 'kind', kind)
            redis.call('EXPIRE', KEYS[3], RECORD_TTL_S)
        end
    end
    return result(breaker, now, opened, false)
end

local answer
if verdict == 'success' then
    answer = succeeded()
elseif verdict == 'failure' then
    answer = failed()
else
    answer = result(breaker, now, false, false)
end
save(KEYS[1], breaker)
return answer
