-- running -> gone: the handlers ended well. No question of ownership: the work
-- is done, whoever owns the entry by now.
-- KEYS 1 stream   ARGV 1 group, 2.. ids (at most 1,000)
redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 2))
redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
return 1
