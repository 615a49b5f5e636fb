-- What both scripts know about rows. A row of ours ends in white space that says who appended it, as which of theirs,
-- which generation it stands in for, and its ref: 32, 16, 12 and 28 characters, each of four values.
local TAG, REPLACES, REF = 88, 12, 28
local VALUE = {[32] = 0, [9] = 1, [10] = 2, [13] = 3}
local SPACE = {[0] = ' ', '\t', '\n', '\r'}
local EXPIRED = 'expired-expired-' -- stands before a cell in place of an incarnation that has expired; of no other's form
local call = redis.call

-- fakeredis, which people test with, has no sha1hex; there two sums will do.
local digest = redis.sha1hex or function(text)
  local a, b = 7, 11
  for i = 1, #text do
    a, b = (a * 31 + string.byte(text, i)) % 4294967291, (b * 131 + string.byte(text, i)) % 4294967279
  end
  return string.format('%.0f-%.0f', a, b)
end

local function whole(number) return string.format('%.0f', number) end

-- The ref of a row of ours; nil if another program wrote it.
local function own_ref(row)
  local tail = string.sub(row, -TAG)
  if #tail < TAG or string.find(tail, '[^ \t\n\r]') then return nil end
  local ref = 0
  for i = TAG - REF + 1, TAG do ref = ref * 4 + VALUE[string.byte(tail, i)] end
  return ref
end

-- The white space of a row's ref.
local function spaced(number)
  local out = {}
  for i = REF, 1, -1 do
    local digit = number % 4
    out[i] = SPACE[digit]
    number = (number - digit) / 4
  end
  return table.concat(out)
end

-- Everything of a name that either script needs. Each key is read here, so that a value of another kind at one of them
-- ends the script before anything is written: what a script has done when it fails is not taken back.
local function opened(first)
  local name = {
    meta = KEYS[first], rows = KEYS[first + 1], counter = KEYS[first + 2], cells = KEYS[first + 3],
    names = KEYS[first + 4], boxes = KEYS[first + 5], index = KEYS[first + 6],
  }
  name.about = call('HMGET', name.meta, 'standfast_epoch', 'created_at', 'updated_at', 'standfast_created',
    'standfast_updated', 'standfast_labels')
  local own = call('HMGET', name.cells, '!edition', '!ref', '!next', '!floor', '!parts', '!ends', '!held')
  -- A cell written before the session is (a lease) begins an incarnation that the first write then joins.
  name.epoch = name.about[1] or own[3] or ''
  name.edition, name.ref = tonumber(own[1] or '0'), tonumber(own[2] or '0')
  local floor, below = string.match(own[4] or '', '^(%d+)%.(%d+)$')
  name.floor, name.below = tonumber(floor), tonumber(below)
  name.old_floor, name.old_below = name.floor, name.below
  name.size, name.parts, name.has_ref = call('LLEN', name.rows), own[5], own[2]
  -- Cells that something holds may be left when their incarnation has expired. Who finds its hash gone, or another program's
  -- in its place, knows by the time whether it has: a clear by the SDK leaves the same keys, and counts outlive that.
  name.held, name.is_over = tonumber(own[7] or '0'), false
  if own[6] and not name.about[1] then
    local time = call('TIME')
    name.is_over = time[1] * 1000 + math.floor(time[2] / 1000) >= tonumber(own[6])
  end
  name.named, name.boxed = call('ZCARD', name.names), call('HLEN', name.boxes)
  -- The list of names says nothing that the cells do not: if it was lost, they are gone through.
  name.is_unlisted = name.named == 0 and string.find(name.parts or '', 'n', 1, true)
  return name
end

-- The cells whose names begin so.
local function cells_with(name, prefix)
  if not name.is_unlisted then return call('ZRANGEBYLEX', name.names, '[' .. prefix, '[' .. prefix .. '\255') end
  local found = {}
  for _, cell in ipairs(call('HKEYS', name.cells)) do
    if string.sub(cell, 1, 1) ~= '!' and string.sub(cell, 1, #prefix) == prefix then found[#found + 1] = cell end
  end
  table.sort(found)
  return found
end

-- The ref of the row at a place. One that another program wrote counts on from the last row of ours before it; or, if
-- rows were dropped from the end since, from the highest that had been given out then: a row that is put back has to
-- find its place before what came later.
local function ref_at(name, place)
  local seen = name.stretch
  if seen and place >= seen.from and place <= seen.to then return seen.ref + place - seen.from end
  local from, ref, to, step = 0, 1, place, 1
  while to >= 0 do
    local first = math.max(0, to - step + 1)
    local found = call('LRANGE', name.rows, first, to)
    for i = #found, 1, -1 do
      local own = own_ref(found[i])
      if own then
        from, ref, to = first + i - 1, own, 0
        break
      end
    end
    to, step = math.min(to, first) - 1, math.min(step * 4, 512)
  end
  local floor = name.floor
  if floor and place >= floor and floor >= from and name.below + 1 > ref + floor - from then
    from, ref = floor, name.below + 1
  end
  name.stretch = {from = from, to = place, ref = ref}
  return ref + place - from
end

-- How many live rows have a ref up to this one.
local function count_upto(name, ref)
  if name.size == 0 or ref_at(name, name.size - 1) <= ref then return name.size end
  local low, high = 0, name.size - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if ref_at(name, middle) <= ref then low = middle + 1 else high = middle end
  end
  return low
end

-- Where the first `count` rows end. Other programs only push and pop at the end, so a row of ours, which is unique,
-- vouches for everything before it; what others pushed behind it is told by its contents.
local function mark(name, count)
  if count == 0 then return '' end
  local head, behind, to, step = name.edition .. '.' .. count .. '.', {}, count - 1, 1
  while to >= 0 do
    local from = math.max(0, to - step + 1)
    local found = call('LRANGE', name.rows, from, to)
    for i = #found, 1, -1 do
      local ref = own_ref(found[i])
      if ref then
        return head .. whole(ref) .. '.' .. #behind .. '.' .. (#behind > 0 and digest(table.concat(behind)) or '')
      end
      behind[#behind + 1] = digest(found[i])
    end
    to, step = from - 1, math.min(step * 4, 512)
  end
  return head .. '0.' .. #behind .. '.' .. digest(table.concat(behind))
end

-- How many rows a mark covers; nil if anything up to it has changed.
local function covered(name, text)
  if text == '' then return 0 end
  local edition, count = string.match(text, '^(%d+)%.(%d+)%.')
  count = tonumber(count)
  if not count or tonumber(edition) ~= name.edition or count > name.size then return nil end
  if mark(name, count) ~= text then return nil end
  return count
end
