-- Read several things of one name at one instant. KEYS: those of the name. ARGV[1]: what is wanted, as JSON whose
-- strings are numbers of further arguments, so that no name or content is ever decoded here.
local want = cjson.decode(ARGV[1])
local name = opened(1)
local time = call('TIME')

local cells = {}
local function add(cell)
  local value = call('HGET', name.cells, cell)
  if value and name.is_over then value = EXPIRED .. string.sub(value, 17) end
  if value then cells[#cells + 1] = cell; cells[#cells + 1] = value end
end
for _, at in ipairs(want.cells) do add(ARGV[at]) end
for _, at in ipairs(want.prefixes) do
  for _, cell in ipairs(cells_with(name, ARGV[at])) do add(cell) end
end

local writers, lists = {}, {}
for n, rows in ipairs(want.rows) do
  local found, first, floor = {}, 0, -1
  if rows.box == 0 then
    local stop = rows.before and count_upto(name, rows.before - 1) or name.size
    local start = rows.limit and math.max(0, stop - rows.limit) or 0
    if rows.after then
      start = count_upto(name, rows.after)
      if rows.limit then stop = math.min(stop, start + rows.limit) end
    end
    if stop > start then
      first = ref_at(name, start)
      if name.floor then floor = name.floor - start end
      found = call('LRANGE', name.rows, start, stop - 1)
    end
  else
    local size, base = string.match(call('HGET', name.boxes, rows.box) or '0.0', '^(%d+)%.(%d+)$')
    local stop = rows.before and math.min(tonumber(size), math.max(0, rows.before - base - 1)) or tonumber(size)
    local start = rows.limit and math.max(0, stop - rows.limit) or 0
    first = base + start + 1
    for place = start + 1, stop do found[#found + 1] = call('HGET', name.boxes, rows.box .. '.' .. place) end
  end
  local chosen = {}
  for _, row in ipairs(found) do
    local tail = string.sub(row, -TAG)
    local writer = #tail == TAG and not string.find(tail, '[^ \t\n\r]') and string.sub(tail, 1, 32)
    if writer then writers[writer] = true end
    -- A row of a box has no ref but its place: chosen ones cannot be told from it, so the caller chooses there.
    if not rows.writer or rows.box > 0 or writer == ARGV[rows.writer] then chosen[#chosen + 1] = row end
  end
  lists[n] = {whole(first), floor, whole(name.below or 0), chosen}
end
local names = {}
for writer in pairs(writers) do
  local known = call('HGET', name.cells, '!' .. writer)
  if known then names[#names + 1] = writer; names[#names + 1] = known end
end

local upto = -1
if want.upto then
  local count = covered(name, ARGV[want.upto])
  if count then upto = count == 0 and 0 or ref_at(name, count - 1) end
end
return {want.mark and mark(name, name.size) or '', name.epoch, name.about, time[1] .. '.' .. string.format('%06d', time[2]), cells, lists,
  names, whole(upto), name.size}
