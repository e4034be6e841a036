-- Cache all kill switches, as the database has them. KEYS: switches. ARGV: the targets that are off.
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], '', text(clock()))
for _, target in ipairs(ARGV) do
    redis.call('HSET', KEYS[1], target, '1')
end
return 1
