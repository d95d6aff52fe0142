-- The clock of the server that has the queue. (In a cluster any server may answer a plain
-- TIME, also while this one is away.)
-- KEYS 1 stream
-- Returns {seconds, microseconds}.
return redis.call('TIME')
