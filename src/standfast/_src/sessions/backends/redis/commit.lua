-- Change one name or several, if all conditions hold; otherwise change nothing and say what was found. KEYS: those of
-- each name, one after the other. ARGV[1]: the changes, as JSON whose strings are numbers of further arguments; contents
-- are arguments, and are never looked into.
local step = cjson.decode(ARGV[1])
local fresh, names = ARGV[2], {}
local NOTHING = string.rep(' ', REPLACES)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function refused(place, change, why)
  local name = names[place]
  local found = {0, place - 1, why, mark(name, name.size), name.epoch}
  for _, want in ipairs(change.want) do
    local value = call('HGET', name.cells, ARGV[want[1]])
    if value then found[#found + 1] = ARGV[want[1]]; found[#found + 1] = value end
  end
  for _, add in ipairs(change.add or {}) do
    local value = call('HGET', name.cells, ARGV[add[1]])
    if value then found[#found + 1] = ARGV[add[1]]; found[#found + 1] = value end
  end
  return found
end

local function chunked(command, key, list)
  local done = 0
  for i = 1, #list, 1000 do done = done + call(command, key, unpack(list, i, math.min(i + 999, #list))) end
  return done
end

-- The session has expired, and its cells are there because a lease holds them: from here on they say so themselves.
local function end_cells(name)
  local every, ended = call('HGETALL', name.cells), {}
  for i = 1, #every, 2 do
    if string.sub(every[i], 1, 1) ~= '!' then
      ended[#ended + 1] = every[i]; ended[#ended + 1] = EXPIRED .. string.sub(every[i + 1], 17)
    end
  end
  chunked('HSET', name.cells, ended)
  call('HDEL', name.cells, '!ends')
end

local function list_again(name)
  local added = {}
  for _, cell in ipairs(cells_with(name, '')) do added[#added + 1] = 0; added[#added + 1] = cell end
  name.named, name.is_unlisted = chunked('ZADD', name.names, added), nil
end

-- Which of a session's keys there are, kept beside its cells: so a key that was lost without the others is noticed. An
-- empty list of rows says nothing where other programs may pop from it.
local function parts_of(name, is_alone)
  return (is_alone and name.size > 0 and 'r' or '') .. (name.boxed > 0 and 'b' or '') .. (name.named > 0 and 'n' or '')
end

-- Whether some keys of a session are gone and others are not: evicted one by one, or copied, renamed or deleted by hand.
local function is_torn(name)
  local parts, there = name.parts or '', parts_of(name, true)
  local has_meta = name.about[1] or name.about[2] or name.about[3] -- the SDK's says nothing of an epoch
  for part in string.gmatch(name.about[1] and parts or '', '.') do
    if not string.find(there, part, 1, true) then return true end
  end
  if has_meta and name.has_ref then return false end
  -- What expires need not end at once: a lease holds cells for longer, and the SDK renews only its own keys.
  if name.size > 0 then return own_ref(call('LINDEX', name.rows, -1)) and call('PTTL', name.rows) == -1 end
  if has_meta then return name.about[1] and not name.parts and name.named == 0 and call('PTTL', name.meta) == -1 end
  return string.find(parts, 'r', 1, true) and call('PTTL', name.cells) == -1
end

-- What a cell to add to holds. All numbers are below 2^53, so that a double holds them exactly.
local function number_in(name, add)
  local value = call('HGET', name.cells, ARGV[add[1]])
  local number = value and tonumber(string.sub(value, 17)) or 0
  if value and not string.find(string.sub(value, 17), '^-?%d+$') then error('a cell to add to holds no whole number') end
  return number
end

local function check(place, change)
  local name = names[place]
  for _, want in ipairs(change.want) do
    local value = call('HGET', name.cells, ARGV[want[1]])
    if want[2] == 0 then
      if value then return 'cell' end
    elseif not value or string.sub(value, 17) ~= ARGV[want[2]] then
      return 'cell'
    end
  end
  for _, add in ipairs(change.add or {}) do
    if add[3] and number_in(name, add) + add[2] > add[3] then return 'cell' end
  end
  if change.mark and mark(name, name.size) ~= ARGV[change.mark] then return 'mark' end
  if change.prefix and not covered(name, ARGV[change.prefix]) then return 'mark' end
end

local function forget_cells(name, gone)
  if #gone > 0 then
    chunked('HDEL', name.cells, gone)
    name.named = name.named - chunked('ZREM', name.names, gone)
  end
end

local function begins(text, prefixes)
  for _, at in ipairs(prefixes) do
    if string.sub(text, 1, #ARGV[at]) == ARGV[at] then return true end
  end
end

local function remove(name, id)
  call('DEL', name.meta, name.rows, name.counter, name.cells, name.names, name.boxes)
  call('ZREM', name.index, id)
  name.epoch, name.about, name.size, name.stretch = '', {}, 0, nil
end

local function wipe(name, id, kept)
  name.ref = math.max(name.ref, name.size > 0 and ref_at(name, name.size - 1) or 0)
  call('DEL', name.meta, name.rows, name.counter, name.boxes)
  call('ZREM', name.index, id)
  local gone = {}
  for _, cell in ipairs(call('ZRANGE', name.names, 0, -1)) do
    if not begins(cell, kept) then gone[#gone + 1] = cell end
  end
  forget_cells(name, gone)
  call('HDEL', name.cells, '!next')
  name.epoch, name.about, name.size, name.edition, name.stretch, name.floor = '', {}, 0, name.edition + 1, nil, nil
  name.boxed = 0
end

local function drop(name, refs)
  local places = {}
  for _, ref in ipairs(refs) do
    local count = count_upto(name, ref)
    if count > 0 and ref_at(name, count - 1) == ref then places[#places + 1] = count - 1 end
    name.ref = math.max(name.ref, ref)
  end
  table.sort(places)
  local size = name.size
  while #places > 0 and places[#places] == size - 1 do
    size = size - 1
    table.remove(places)
  end
  if size == 0 then call('DEL', name.rows) elseif size < name.size then call('LTRIM', name.rows, 0, size - 1) end
  if size < name.size then name.floor, name.below = size, name.ref end
  for i = #places, 1, -1 do
    call('LSET', name.rows, places[i], fresh .. ' dropped')
    call('LREM', name.rows, 1, fresh .. ' dropped')
    if name.floor and places[i] < name.floor then name.floor = name.floor - 1 end
  end
  name.size, name.stretch = size - #places, nil
end

local function boxed(name, number)
  local size, base = string.match(call('HGET', name.boxes, number) or '0.0', '^(%d+)%.(%d+)$')
  return tonumber(size), tonumber(base)
end

local function forget_box(name, number)
  local size, gone = boxed(name, number), {tostring(number)}
  for place = 1, size do gone[#gone + 1] = number .. '.' .. place end
  chunked('HDEL', name.boxes, gone)
end

local function taken(name, list, part)
  if part.new then
    for at = part.new[1], part.new[2] do list[#list + 1] = ARGV[at] end
    return
  end
  local found, target = {}, name
  if part.of then name = opened(part.of) end
  if part.box == 0 then
    local start = part.after and count_upto(name, part.after) or 0
    local stop = part.upto and count_upto(name, part.upto) or name.size
    if stop > start then found = call('LRANGE', name.rows, start, stop - 1) end
  else
    local size, base = boxed(name, part.box)
    for place = math.max(1, (part.after or base) - base + 1), math.min(size, (part.upto or base + size) - base) do
      found[#found + 1] = call('HGET', name.boxes, part.box .. '.' .. place)
    end
  end
  for _, row in ipairs(found) do
    if part.of and own_ref(row) then target.writers[string.sub(row, -TAG, -TAG + 31)] = name.cells end
    if part.replaces then
      local ref = own_ref(row)
      if ref then
        row = string.sub(row, 1, -(REF + REPLACES) - 1) .. ARGV[part.replaces] .. string.sub(row, -REF)
      elseif ARGV[part.replaces] ~= NOTHING then -- nobody's, but it stands in for a generation
        row = row .. string.rep(' ', TAG - REF - REPLACES) .. ARGV[part.replaces] .. string.rep(' ', REF)
      end
    end
    list[#list + 1] = row
  end
end

local function pushed(name, list)
  for i = 1, #list, 1000 do call('RPUSH', name.rows, unpack(list, i, math.min(i + 999, #list))) end
  name.size = name.size + #list
end

local function arrange(name, wanted)
  local live, keep = {}, {}
  name.writers = {}
  for _, part in ipairs(wanted.live) do taken(name, live, part) end
  for _, part in ipairs(wanted.keep) do taken(name, keep, part) end
  name.ref = math.max(name.ref, name.size > 0 and ref_at(name, name.size - 1) or 0, now)
  for i, row in ipairs(live) do
    name.ref = name.ref + 1
    if own_ref(row) then live[i] = string.sub(row, 1, -REF - 1) .. spaced(name.ref) end
  end
  for _, number in ipairs(wanted.forget) do forget_box(name, number) end
  if wanted.box > 0 then
    forget_box(name, wanted.box)
    local fields = {tostring(wanted.box), #keep .. '.' .. whole(name.ref)}
    for place, row in ipairs(keep) do
      fields[#fields + 1] = wanted.box .. '.' .. place
      fields[#fields + 1] = row
    end
    chunked('HSET', name.boxes, fields)
    name.ref = name.ref + #keep
  end
  call('DEL', name.rows)
  name.size, name.stretch, name.edition, name.floor = 0, nil, name.edition + 1, nil
  pushed(name, live)
end

local function put_back(name, rows)
  for _, back in ipairs(rows) do
    local place = count_upto(name, back[1] - 1)
    if place == name.size then
      call('RPUSH', name.rows, ARGV[back[2]])
    else -- equal rows may stand in the list: the one to insert before is made unique for a moment
      local follower = call('LINDEX', name.rows, place)
      call('LSET', name.rows, place, fresh .. ' here')
      call('LINSERT', name.rows, 'BEFORE', fresh .. ' here', ARGV[back[2]])
      call('LSET', name.rows, place + 1, follower)
    end
    if name.floor and place <= name.floor then name.floor = name.floor + 1 end
    name.size, name.stretch, name.ref = name.size + 1, nil, math.max(name.ref, back[1])
  end
  name.edition = name.edition + 1
end

-- The caller has guessed the next ref and written it into the rows; a guess that is too low is mended here.
local function push(name, range, base)
  local last = name.size > 0 and ref_at(name, name.size - 1) or 0
  local ref, rows = math.max(name.ref, last) + 1, {}
  if base >= ref then
    ref = base
    for at = range[1], range[2] do rows[#rows + 1] = ARGV[at] end
  else
    for at = range[1], range[2] do
      rows[#rows + 1] = string.sub(ARGV[at], 1, -REF - 1) .. spaced(ref + at - range[1])
    end
  end
  pushed(name, rows)
  name.ref = ref + #rows - 1
  return ref
end

-- Rows and boxes that were kept elsewhere. Their refs are their times, unless rows that are there have higher ones.
local function load(name, wanted)
  for _, box in ipairs(wanted.boxes) do
    local size = box[3] - box[2] + 1
    local fields = {tostring(box[1]), size .. '.' .. whole(name.ref)}
    for place = 1, size do
      fields[#fields + 1] = box[1] .. '.' .. place
      fields[#fields + 1] = ARGV[box[2] + place - 1]
    end
    chunked('HSET', name.boxes, fields)
    name.ref = name.ref + size
  end
  local ref, rows = math.max(name.ref, name.size > 0 and ref_at(name, name.size - 1) or 0), {}
  for at = wanted.rows[1], wanted.rows[2] do
    local row = ARGV[at]
    local own = own_ref(row)
    if own <= ref then
      own = ref + 1
      row = string.sub(row, 1, -REF - 1) .. spaced(own)
    end
    ref, rows[#rows + 1] = own, row
  end
  pushed(name, rows)
  name.ref, name.stretch = ref, nil
  if wanted.created then
    local created = math.min(wanted.created, now)
    call('HSET', name.meta, 'created_at', whole(math.floor(created / 1000000)), 'standfast_created', whole(created))
  end
end

local function touch(name, id, field, label_keys)
  local before = math.max(tonumber(name.about[5] or '0'), tonumber(name.about[3] or '0') * 1000000)
  local moved = whole(math.max(now, before + 1))
  if not name.about[1] then
    if name.epoch == '' then name.epoch = fresh end
    call('HSET', name.meta, 'standfast_epoch', name.epoch, field, id)
    call('HDEL', name.cells, '!next')
    if call('HSETNX', name.meta, 'created_at', time[1]) == 1 then call('HSET', name.meta, 'standfast_created', moved) end
    name.about[1] = name.epoch
  end
  call('HSET', name.meta, 'updated_at', time[1], 'standfast_updated', moved)
  local top = call('ZRANGE', name.index, -1, -1, 'WITHSCORES')
  local score = whole(math.max(now, (tonumber(top[2] or '0')) + 1))
  call('ZADD', name.index, score, id)
  for _, key in ipairs(label_keys) do call('ZADD', KEYS[key], score, id) end
end

local function write_cells(name, change)
  local puts, fields, added, gone = {}, {}, {}, {}
  for _, put in ipairs(change.put) do
    if put[2] == 0 then
      gone[#gone + 1] = ARGV[put[1]]
    else
      puts[#puts + 1] = {ARGV[put[1]], ARGV[put[2]]}
    end
  end
  for _, add in ipairs(change.add or {}) do
    puts[#puts + 1] = {ARGV[add[1]], string.format('%.0f', number_in(name, add) + add[2])}
  end
  for _, put in ipairs(puts) do
    if name.epoch == '' then name.epoch = fresh end
    if not name.about[1] then
      -- Into the session's own hash if there is one, so that it ends when the SDK clears the session.
      if name.about[2] then
        call('HSET', name.meta, 'standfast_epoch', name.epoch)
        call('HDEL', name.cells, '!next')
      else
        call('HSET', name.cells, '!next', name.epoch)
      end
      name.about[1] = name.epoch
    end
    fields[#fields + 1] = put[1]; fields[#fields + 1] = name.epoch .. put[2]
    added[#added + 1] = 0; added[#added + 1] = put[1]
  end
  forget_cells(name, gone)
  if #fields > 0 and chunked('HSET', name.cells, fields) > 0 then
    name.named = name.named + chunked('ZADD', name.names, added)
  end
  local own = {}
  for _, writer in ipairs(change.writers) do own[#own + 1] = '!' .. ARGV[writer[1]]; own[#own + 1] = ARGV[writer[2]] end
  for writer, cells in pairs(name.writers or {}) do -- rows of another name bring the names of their writers
    local known = call('HGET', cells, '!' .. writer)
    if known then own[#own + 1] = '!' .. writer; own[#own + 1] = known end
  end
  if name.ref > 0 then own[#own + 1] = '!ref'; own[#own + 1] = whole(name.ref) end
  if name.floor ~= name.old_floor or name.below ~= name.old_below then
    own[#own + 1] = '!floor'; own[#own + 1] = name.floor and name.floor .. '.' .. whole(name.below) or ''
  end
  if name.edition > 0 then own[#own + 1] = '!edition'; own[#own + 1] = name.edition end
  if change.whole and not (name.is_torn and not change.wipe) then -- what is noticed must not be forgotten
    if change.arrange or change.load then name.boxed = call('HLEN', name.boxes) end
    local parts = parts_of(name, change.whole == 2)
    if parts ~= name.parts then own[#own + 1] = '!parts'; own[#own + 1] = parts end
  end
  chunked('HSET', name.cells, own)
end

-- When a name ends. A change says so by the setting it is made with: so long after it, or never (a ttl of 0), which takes
-- off what an earlier setting gave it. Whatever else is written (a lease), and a change that is told to keep things as they
-- are (no ttl), leaves it as the name's hash has it. It is the same for all keys, so that nothing of a name is left without
-- the rest; only cells stay for as long as a lease holds them (`!held`). When the rest ends stands among them (`!ends`), so
-- that they are known for what is left of a session that has expired.
local function expire(name, ttl, hold, touched)
  local ms, left = math.floor(now / 1000), call('PTTL', name.meta)
  local is_there, ends = left ~= -2, left == -1 and 0 or math.max(left, 1) -- 0: never
  if not is_there then -- nobody has written to it, or it has expired: its cells must end as well, and never are kept
    ends = ttl ~= 0 and ttl or nil
  elseif touched and ttl then
    ends = ttl
  end
  if hold > 0 then
    name.held = math.max(name.held, ms + hold)
    call('HSET', name.cells, '!held', whole(name.held))
  end
  if is_there and ends > 0 then
    call('HSET', name.cells, '!ends', whole(ms + ends))
  elseif is_there then
    call('HDEL', name.cells, '!ends')
  end
  local function expire_key(key, held)
    if ends == 0 then return call('PERSIST', key) end
    local own, wanted = is_there and -1 or call('PTTL', key), ends
    if own ~= -1 then wanted = own end
    if wanted then call('PEXPIREAT', key, whole(math.max(ms + wanted, held))) end
  end
  if touched then
    for _, key in ipairs({name.meta, name.rows, name.counter, name.boxes}) do expire_key(key, 0) end
  end
  for _, key in ipairs({name.cells, name.names}) do expire_key(key, name.held) end
end

-- The SDK's counter, of rows that were ever added. What another program made of it (another type, a text) is left as it is:
-- nothing here depends on it.
local function count_rows(name, change)
  local ranges, added = {change.push, change.load and change.load.rows}, 0
  for _, part in ipairs(change.arrange and change.arrange.live or {}) do ranges[#ranges + 1] = part.new end
  for _, range in pairs(ranges) do added = added + range[2] - range[1] + 1 end
  if added > 0 then redis.pcall('INCRBY', name.counter, whole(added)) end
end

local function apply(change, name)
  local id, first = ARGV[change.id], 0
  if change.remove then remove(name, id) end
  if change.wipe then wipe(name, id, change.wipe) end
  if change.drop then drop(name, change.drop) end
  if change.arrange then arrange(name, change.arrange) end
  if change.back then put_back(name, change.back) end
  if change.touch then touch(name, id, change.field, change.labels_at) end
  if change.push then first = push(name, change.push, change.base) end
  if change.load then load(name, change.load) end
  if change.sweep then
    local gone = {}
    for _, at in ipairs(change.sweep) do
      for _, cell in ipairs(cells_with(name, ARGV[at])) do gone[#gone + 1] = cell end
    end
    forget_cells(name, gone)
  end
  if not change.remove then write_cells(name, change) end
  if change.labels then call('HSET', name.meta, 'standfast_labels', ARGV[change.labels]) end
  if change.whole == 1 then count_rows(name, change) end
  expire(name, change.ttl, change.hold, change.touch)
  return first
end

for place, change in ipairs(step) do
  names[place] = opened(change.first)
  if names[place].is_unlisted then list_again(names[place]) end
  if names[place].is_over then end_cells(names[place]) end
  call('ZCARD', names[place].index)
  for _, key in ipairs(change.labels_at) do call('ZCARD', KEYS[key]) end
end
for place, change in ipairs(step) do
  local name = names[place]
  name.is_torn = change.whole and is_torn(name)
  if name.is_torn and change.touch and not change.remove and not change.wipe then
    return redis.error_reply('TORN a part of this session is gone')
  end
  local why = check(place, change)
  if why then return refused(place, change, why) end
end
local done = {1}
for place, change in ipairs(step) do
  local name = names[place]
  local first = apply(change, name)
  done[#done + 1] = change.push and name.edition .. '.' .. name.size .. '.' .. whole(name.ref) .. '.0.'
    or mark(name, name.size)
  done[#done + 1] = whole(first)
end
return done
