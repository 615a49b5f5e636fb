-- Takes entries out of an index, where they stand as they stood when they were looked at (entry, score, entry, score, ...).
--
-- A run that has paused again since, or a session that was written anew, has a higher score and belongs there: taken out,
-- nobody would list it before its next change.
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if score and tonumber(score) == tonumber(ARGV[i + 1]) then redis.call('ZREM', KEYS[1], ARGV[i]) end
end
return 0
