-- Cache one kill switch. KEYS: switches. ARGV: target, 1 (off) or 0 (on).
if ARGV[2] == '1' then
    redis.call('HSET', KEYS[1], ARGV[1], '1')
else
    redis.call('HDEL', KEYS[1], ARGV[1])
end
return 1
