-- The change that every turn makes, by itself: some cells are as expected, rows are pushed, cells are put. It does what
-- commit.lua does for it, in a third of the time; what it cannot do it leaves alone (0), and commit.lua is asked: a
-- session that is new or empty, one whose last row another program wrote, one of which a key may be gone, and one that
-- is no longer to expire.
-- KEYS: those of the name. ARGV: id, first ref, ttl in ms (0: none, '': as it is), how many wants, puts and writers, '1' if
-- all names of the kind are in one index, '2' if the SDK's counter counts the rows as well; a want is a name and 'n' or 'v' with the value, a put a name and a value, a writer its
-- white space and its name; then rows.
-- It answers with the mark, a string by itself: taking an array apart is a good part of a client's work for an append.
local A, call = ARGV, redis.call
local wants, puts, writers = tonumber(A[4]), tonumber(A[5]), tonumber(A[6])
local first_put, first_writer = 8 + 2 * wants, 8 + 2 * wants + 2 * puts
local first_row = first_writer + 2 * writers
local about = call('HMGET', KEYS[1], 'standfast_epoch', 'standfast_updated', 'updated_at')
local names = {'!edition', '!ref', '!held'}
for i = 1, wants do names[i + 3] = A[6 + 2 * i] end
local cells = call('HMGET', KEYS[4], unpack(names))
local is_new = wants ~= puts -- whether a cell may be put that was not there
for i = 1, wants do
  local cell = cells[i + 3]
  if not cell or A[6 + 2 * i] ~= A[first_put + 2 * i - 2] then is_new = true end
  if (cell and 'v' .. string.sub(cell, 17) or 'n') ~= A[7 + 2 * i] then return 0 end
end
local epoch, ref, row = about[1], tonumber(A[2]), call('LINDEX', KEYS[2], -1)
if not epoch or not row or ref <= tonumber(cells[2] or math.huge) then return 0 end
local tail = string.sub(row, -88)
if #tail < 88 or string.find(tail, '[^ \t\n\r]') then return 0 end
-- Every key that is written is read first: is it of the right kind?
if is_new and call('ZCARD', KEYS[5]) == 0 then return 0 end
if A[3] == '0' and call('PTTL', KEYS[1]) ~= -1 then return 0 end
local top = call('ZRANGE', KEYS[7], -1, -1, 'WITHSCORES') -- in a script it is flat, in both protocols
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local moved = math.max(now, tonumber(about[2] or '0') + 1, tonumber(about[3] or '0') * 1000000 + 1)
call('HSET', KEYS[1], 'updated_at', time[1], 'standfast_updated', string.format('%.0f', moved))
if A[7] == '' or top[1] ~= A[1] then -- else it is the first of the listing already
  call('ZADD', KEYS[7], string.format('%.0f', math.max(now, tonumber(top[2] or '0') + 1)), A[1])
end
local size
for i = first_row, #A, 1000 do size = call('RPUSH', KEYS[2], unpack(A, i, math.min(i + 999, #A))) end
local last = string.format('%.0f', ref + #A - first_row)
local fields, added = {'!ref', last}, {}
local ends = A[3] ~= '' and A[3] ~= '0' and math.floor(now / 1000) + tonumber(A[3])
if ends then fields[3] = '!ends'; fields[4] = string.format('%.0f', ends) end
for i = first_put, first_writer - 1, 2 do
  fields[#fields + 1] = A[i]; fields[#fields + 1] = epoch .. A[i + 1]
  added[#added + 1] = 0; added[#added + 1] = A[i]
end
for i = first_writer, first_row - 1, 2 do
  fields[#fields + 1] = '!' .. A[i]; fields[#fields + 1] = A[i + 1]
end
if call('HSET', KEYS[4], unpack(fields)) > 0 and is_new and #added > 0 then call('ZADD', KEYS[5], unpack(added)) end
if A[7] == '2' then
  -- The SDK's. What another program made of it (another type, a text) is left as it is: nothing here depends on it.
  local count, added = redis.pcall('INCRBY', KEYS[3], #A - first_row + 1), #A - first_row + 1
  local left = count == added and not ends and call('PTTL', KEYS[1]) or -1 -- a new one ends with the rest
  if left > 0 then call('PEXPIRE', KEYS[3], left) end
end
if ends then
  local held = string.format('%.0f', math.max(ends, tonumber(cells[3] or '0'))) -- a lease may hold the cells for longer
  for i = 1, 6 do call('PEXPIREAT', KEYS[i], (i == 4 or i == 5) and held or fields[4]) end
end
return (cells[1] or '0') .. '.' .. size .. '.' .. last .. '.0.'
