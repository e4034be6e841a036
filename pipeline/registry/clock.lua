-- The server's clock, so that hosts whose clocks disagree agree here.
local function clock()
    local time = redis.call('TIME')
    return tonumber(time[1]) + tonumber(time[2]) / 1e6
end
