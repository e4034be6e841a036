-- What every operation shares: a target's record, read and written. It stands in front of each operation's script.
--
-- The rules are those of pipeline/failover/breaker.py, in the same order and under the same names.
--   breaker   hash: open until opened_at failures kind probe probe_until ramp streak forgiven group_seen
--   permits   sorted set: token -> when its lease lapses
--   group     hash: opened_at until kind, shared by the targets of one quota group
--   switches  hash: a field for each target that is switched off, and '' = when they were read from the database

local FULL_RAMP = 64
local RECORD_TTL_S = 86400

-- Lua's own tostring() would round a time to seconds.
local function text(number)
    return string.format('%.6f', number)
end

local function load(key)
    local fields = redis.call('HGETALL', key)
    local record = {}
    for i = 1, #fields, 2 do
        record[fields[i]] = fields[i + 1]
    end
    return {
        open = record.open == '1',
        ['until'] = tonumber(record['until'] or '0'),
        opened_at = tonumber(record.opened_at or '0'),
        failures = tonumber(record.failures or '0'),
        kind = record.kind or '',
        probe = record.probe or '',
        probe_until = tonumber(record.probe_until or '0'),
        ramp = tonumber(record.ramp or '0'), -- 0: it has recovered
        streak = record.streak or '',
        forgiven = record.forgiven or '',
        group_seen = tonumber(record.group_seen or '-1'),
    }
end

local function save(key, breaker)
    redis.call('HSET', key,
        'open', breaker.open and '1' or '0',
        'until', text(breaker['until']),
        'opened_at', text(breaker.opened_at),
        'failures', breaker.failures,
        'kind', breaker.kind,
        'probe', breaker.probe,
        'probe_until', text(breaker.probe_until),
        'ramp', breaker.ramp,
        'streak', breaker.streak,
        'forgiven', breaker.forgiven,
        'group_seen', text(breaker.group_seen))
    redis.call('EXPIRE', key, RECORD_TTL_S)
end

-- Takes over the quota group's cooldown, once; true when the record changed.
local function join_group(breaker, group_key)
    if group_key == '' then
        return false
    end
    local group = redis.call('HMGET', group_key, 'opened_at', 'until', 'kind')
    local opened_at = tonumber(group[1] or '-1')
    if opened_at <= breaker.group_seen then
        return false
    end
    breaker.open = true
    breaker['until'] = math.max(breaker['until'], tonumber(group[2]))
    breaker.opened_at = opened_at
    breaker.failures = math.max(1, breaker.failures)
    breaker.kind = group[3]
    breaker.ramp = 0
    breaker.group_seen = opened_at
    return true
end

local function forget_lapsed_probe(breaker, now)
    if breaker.probe ~= '' and breaker.probe_until <= now then
        breaker.probe = ''
    end
end

-- The call started before the breaker opened: while it is open, only probes are let through.
local function is_late(breaker, probe, admitted_at)
    return not probe or admitted_at < breaker.opened_at
end

local function ramp(limit, max_parallel)
    local full = max_parallel > 0 and max_parallel or FULL_RAMP
    return limit < full and limit or 0
end

local function close(breaker, max_parallel)
    breaker.open = false
    breaker['until'] = 0
    breaker.probe = ''
    breaker.ramp = ramp(1, max_parallel)
end

local function result(breaker, now, opened, closed)
    local until_text, wait_text = '', ''
    if breaker.open and breaker['until'] > now then
        until_text, wait_text = text(breaker['until']), text(breaker['until'] - now)
    end
    return {until_text, wait_text, opened and 1 or 0, closed and 1 or 0}
end
