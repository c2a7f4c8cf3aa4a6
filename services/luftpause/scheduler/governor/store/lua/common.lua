-- What do all scripts of the shared ledger know? It stands before each of them.
--
-- KEYS: ledger (hash), leases (hash), expiries (sorted set), waiting (hash), all of one target and so in one slot; and up to which number
-- this node has told what it granted without the store.
-- ARGV[1] is the question; it and the answer are MessagePack. Seconds; only durations come in and go out, as moments are the server's.

local LEDGER, LEASES, EXPIRIES, WAITING, TOLD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local INF = 1e300
local NEAR = 1e-6
local KEEP_MS = 604800000
local FENCES_SKIPPED = 1048576
local SCARCE_SECONDS = 1
local HINT_SECONDS = 0.01
local IDLE_SECONDS = 1
local LATEST_SECONDS = 1 -- so exactly it is kept how late it is
local WAIT_SECONDS = 1 -- a node says every quarter of it who waits there
local FORECAST_SECONDS_MIN = 60
local ALIVE_SECONDS = 5
local TOLD_SECONDS_MAX = 86400 -- what a provider tells is believed so long
local CLOCKS_SECONDS = 2 -- so far a provider's clock, told in whole seconds, may be from ours

local ask = cmsgpack.unpack(ARGV[1])
local rules = ask.rules
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000

-- ---- records: read once, written once

local records, changed = {}, {}

local function record(field)
  if records[field] == nil then
    local raw = redis.call('HGET', LEDGER, field)
    records[field] = raw and cmsgpack.unpack(raw) or false
  end
  return records[field]
end

local function touch(field)
  changed[field] = true
end

local function read_ahead()
  local fields = {'meta', 'breaker'}
  for _, scope in ipairs(ask.scopes) do fields[#fields + 1] = 's:' .. scope.name end
  for at, raw in ipairs(redis.call('HMGET', LEDGER, unpack(fields))) do
    records[fields[at]] = raw and cmsgpack.unpack(raw) or false
  end
end

local function lease_of(want)
  local raw = redis.call('HGET', LEASES, want)
  return raw and cmsgpack.unpack(raw) or nil
end

local function put_lease(lease)
  redis.call('HSET', LEASES, lease.want, cmsgpack.pack(lease))
  redis.call('ZADD', EXPIRIES, string.format('%.6f', lease.expires), lease.want)
end

read_ahead()

-- ---- has the store lost what it had acknowledged? Each node says what it has seen last.

local meta = record('meta')
local lost = false

-- the server's clock may be set back, or be another one after a failover: what it was ahead of that stays ahead
if meta then
  meta.ahead, meta.latest = meta.ahead or 0, meta.latest or now -- an earlier version did not write them
  if now + meta.ahead < meta.latest then
    meta.ahead = meta.latest - now
    touch('meta')
  end
  now = now + meta.ahead
end

local function begin_epoch(known)
  meta.was = meta.epoch
  meta.epoch = string.format('%.6f', now) .. '/' .. ask.node
  if known then
    meta.was = ask.epoch
    meta.fence = math.max(meta.fence, ask.fence_max) + FENCES_SKIPPED
    meta.learning_until = now + ask.learning_seconds
    lost = true
  end
  touch('meta')
end

local knows = ask.epoch ~= ''
if not meta then
  meta = {epoch = '', was = '', seq = 0, fence = 0, learning_until = -INF, scarce_until = -INF, hint_at = -INF, used_at = -INF,
    ahead = 0, latest = now}
  records['meta'] = meta
  begin_epoch(knows)
elseif knows and ((ask.epoch == meta.epoch and ask.seq > meta.seq) or (ask.epoch ~= meta.epoch and ask.epoch ~= meta.was)) then
  begin_epoch(true)
end
local behind = knows and ask.epoch ~= meta.epoch -- it must bring its leases before it gets new ones

local function wrote()
  meta.seq = meta.seq + 1
  touch('meta')
end

local function hint(what, seconds)
  redis.call('PUBLISH', LEDGER .. ':events', cmsgpack.pack({what = what, seconds = seconds, node = ask.node}))
end

local function scarce_for(seconds)
  if meta.scarce_until < now + seconds then
    meta.scarce_until = now + seconds
    touch('meta')
  end
end

local function tell_of_room()
  if meta.scarce_until > now and now - meta.hint_at >= HINT_SECONDS then
    meta.hint_at = now
    touch('meta')
    hint('room', 0)
  end
end

-- ---- scopes (the same rules as luftpause.scheduler.quota.ledger)

local function capacity(scope)
  return scope.kind == 'bucket' and scope.limit * scope.burst or scope.limit
end

local function left(scope)
  return (scope.kind == 'concurrent' and scope.limit or scope.remaining) - scope.out
end

local function roll(scope)
  if scope.kind == 'fixed' and now >= scope.reset_at then
    local windows = math.floor((now - scope.reset_at) / scope.window) + 1
    scope.remaining, scope.at, scope.reset_at = scope.limit, now, scope.reset_at + windows * scope.window
    return true
  elseif scope.kind == 'bucket' and now > scope.at then
    scope.remaining = math.min(capacity(scope), scope.remaining + (now - scope.at) * scope.limit / scope.window)
    scope.at = now
  end
  return false
end

local function scope_of(name)
  local scope = record('s:' .. name)
  if scope and roll(scope) then touch('s:' .. name) end
  return scope or nil
end

local function configured(told)
  local field = 's:' .. told.name
  local scope = scope_of(told.name)
  if not scope or scope.kind ~= told.kind then
    scope = {name = told.name, kind = told.kind, told_limit = told.limit, limit = told.limit, window = told.window, burst = told.burst,
      at = now, reset_at = INF, sample_at = -INF, blocked_until = -INF, out = 0}
    scope.remaining = capacity(scope)
    records[field] = scope
    touch(field)
  elseif scope.told_limit ~= told.limit or scope.window ~= told.window or scope.burst ~= told.burst then
    local was = scope.limit
    if scope.told_limit ~= told.limit then scope.limit = told.limit end -- what a provider has said counts until the configuration changes
    if scope.kind == 'fixed' then -- what was used stays used
      scope.remaining = math.max(-scope.limit, scope.remaining + scope.limit - was)
      if scope.reset_at < INF and scope.window ~= told.window then scope.reset_at = math.min(scope.reset_at, now + told.window) end
    end
    scope.told_limit, scope.window, scope.burst = told.limit, told.window, told.burst
    touch(field)
  end
  return scope
end

local function take(name, units)
  local scope = scope_of(name)
  if not scope then return end
  scope.out = scope.out + units
  if scope.kind == 'fixed' and scope.reset_at >= INF then scope.reset_at = now + scope.window end
  touch('s:' .. name)
end

local function give_back(name, units)
  local scope = scope_of(name)
  if not scope then return end
  scope.out = scope.out - units
  if scope.out <= NEAR then scope.out = 0 end
  touch('s:' .. name)
end

local function charge(name, units)
  local scope = scope_of(name)
  if not scope or scope.kind == 'concurrent' then return end
  scope.remaining, scope.at = math.max(-scope.limit, scope.remaining - units), now
  touch('s:' .. name)
end

local function is_stale(sample, at) -- it is of a window that has ended
  local scope = scope_of(sample.scope)
  if not scope or scope.kind ~= 'fixed' or scope.reset_at >= INF or sample.reset_seconds < 0 then return false end
  return at + sample.reset_seconds <= scope.reset_at - scope.window + CLOCKS_SECONDS
end

local function sampled(sample, granted, at)
  local scope = scope_of(sample.scope)
  if not scope then return false end
  if sample.limit > 0 then
    scope.limit, scope.remaining = sample.limit, math.max(-sample.limit, scope.remaining)
    touch('s:' .. sample.scope)
  end
  local fixed, reset = scope.kind == 'fixed', math.min(sample.reset_seconds, math.max(scope.window, TOLD_SECONDS_MAX))
  local resets = reset >= 0 and at + reset or nil
  if is_stale(sample, at) or (resets and reset > 0 and resets <= now) then return sample.has_remaining end
  if sample.has_remaining and scope.kind ~= 'concurrent' then
    local shift = math.max(2, 0.02 * scope.window)
    local anew = fixed and resets and (scope.reset_at >= INF or resets > scope.reset_at + shift)
    if sample.remaining <= scope.remaining or anew or granted > scope.sample_at then
      scope.remaining, scope.at = math.max(-scope.limit, math.min(sample.remaining, capacity(scope))), now
    end
    scope.sample_at = math.max(scope.sample_at, at)
  end
  if fixed and reset > 0 then
    scope.reset_at = resets
  elseif fixed and scope.reset_at >= INF and sample.has_remaining and sample.remaining < scope.limit then
    scope.reset_at = at + scope.window
  end
  touch('s:' .. sample.scope)
  return sample.has_remaining
end

-- ---- the breaker (the same rules as luftpause.scheduler.quota.breaker)

local breaker = record('breaker')
if not breaker then
  breaker = {mode = 'closed', open_until = -INF, episode = 0, episode_at = -INF, strikes = 0, limited_at = -INF, successes = 0,
    window = INF, probes = 0}
  records['breaker'] = breaker
end

if (breaker.mode == 'open' or breaker.mode == 'disabled') and now >= breaker.open_until then
  breaker.mode, breaker.successes = 'half', 0
  touch('breaker')
end

-- ---- leases

local function end_lease(lease)
  redis.call('HDEL', LEASES, lease.want)
  redis.call('ZREM', EXPIRIES, lease.want)
  if lease.probe and lease.episode == breaker.episode then
    breaker.probes = math.max(0, breaker.probes - 1)
    touch('breaker')
  end
  for _, cost in ipairs(lease.cost) do give_back(cost.name, cost.units) end
end

local function sweep(most)
  local over = redis.call('ZRANGEBYSCORE', EXPIRIES, '-inf', string.format('%.6f', now), 'LIMIT', 0, most)
  for _, want in ipairs(over) do
    local lease = lease_of(want)
    if lease then
      end_lease(lease)
      for _, cost in ipairs(lease.cost) do -- whoever vanished may have called
        local scope = scope_of(cost.name)
        if scope and scope.sample_at <= lease.granted then charge(cost.name, cost.units) end
      end
    else
      redis.call('ZREM', EXPIRIES, want)
    end
  end
  return #over
end

-- ---- the answer

local elsewhere = {} -- per scope and class: decaying sums of what is wanted on other nodes
local owners = {} -- per scope and owner of a reservation: what it has used there, and the same sums

local function waits(counts, seconds)
  local wanted, owned = {}, {}
  for _, told in ipairs(ask.scopes) do
    wanted[told.name] = told.wanted
    if told.owned and #told.owned > 0 then owned[told.name] = told.owned end
  end
  local one = {counts = counts, until_ = now + seconds, alive = now + ALIVE_SECONDS, wanted = wanted, owned = owned, at = now}
  redis.call('HSET', WAITING, ask.node, cmsgpack.pack(one))
end

local function owners_heard(told, list, at, fade)
  local scope = scope_of(told.name)
  local old = told.kind == 'fixed' and (not scope or scope.reset_at == INF or at < scope.reset_at - scope.window)
  local left = old and 0 or (told.kind == 'fixed' and 1 or math.exp((at - now) / told.window))
  local sums = owners[told.name] or {}
  for _, share in ipairs(list) do
    local sum = sums[share.caller] or {caller = share.caller, used = 0, demand = {0, 0, 0}}
    sum.used = sum.used + share.used * left
    for class = 1, 3 do sum.demand[class] = sum.demand[class] + share.demand[class] * fade end
    sums[share.caller] = sum
  end
  owners[told.name] = sums
end

local function owned_elsewhere(name)
  local list = {}
  for _, sum in pairs(owners[name] or {}) do list[#list + 1] = sum end
  return list
end

local function heard(one) -- what a node wanted goes on counting when it is idle, as it does there
  if not one.wanted then return end
  for _, told in ipairs(ask.scopes) do
    local wanted = one.wanted[told.name]
    if wanted then
      local fade = math.exp((one.at - now) / math.max(FORECAST_SECONDS_MIN, told.window / 6))
      local sum = elsewhere[told.name] or {0, 0, 0}
      for class = 1, 3 do sum[class] = sum[class] + wanted[class] * fade end
      elsewhere[told.name] = sum
      local list = one.owned and one.owned[told.name]
      if list then owners_heard(told, list, one.at, fade) end
    end
  end
end

local function nodes()
  local count, better, mine = 0, {0, 0, 0}, nil
  local all = redis.call('HGETALL', WAITING)
  elsewhere, owners = {}, {}
  for at = 1, #all, 2 do
    local one = cmsgpack.unpack(all[at + 1])
    if all[at] == ask.node then mine = one else heard(one) end
    if one.alive > now then
      count = count + 1
      if all[at] ~= ask.node and one.until_ > now then
        for class = 1, 3 do better[class] = better[class] + one.counts[class] end
      end
    elseif one.alive < now - 60 then
      redis.call('HDEL', WAITING, all[at])
    end
  end
  if not mine or (mine.at or 0) < now - WAIT_SECONDS / 4 then
    if not mine or mine.alive <= now then count = count + 1 end
    waits(mine and mine.counts or {0, 0, 0}, mine and math.max(0, mine.until_ - now) or 0)
  end
  return count, better
end

local function reply(out)
  if next(changed) or now >= meta.latest + LATEST_SECONDS then
    meta.latest = math.max(meta.latest, now)
    touch('meta')
  end
  for field in pairs(changed) do redis.call('HSET', LEDGER, field, cmsgpack.pack(records[field])) end
  for _, key in ipairs({LEDGER, LEASES, EXPIRIES, WAITING}) do redis.call('PEXPIRE', key, KEEP_MS) end
  local view = {}
  for at, told in ipairs(ask.scopes) do
    local scope = scope_of(told.name)
    if scope then
      view[#view + 1] = {name = told.name, limit = scope.limit, remaining = scope.remaining, out = scope.out,
        wanted = elsewhere[told.name] or {0, 0, 0}, owned = owned_elsewhere(told.name), reset_seconds = scope.reset_at < INF and math.max(0, scope.reset_at - now) or -1}
    end
  end
  local standing = breaker.mode == 'open' or breaker.mode == 'disabled'
  out.epoch, out.seq, out.fence_max, out.scopes = meta.epoch, meta.seq, meta.fence, view
  out.lost, out.behind = lost, behind
  out.blocked_seconds = standing and math.max(0, breaker.open_until - now) or 0
  out.disabled = breaker.mode == 'disabled'
  out.enabled_at = meta.enabled_at or -1
  out.learning_seconds = math.max(0, meta.learning_until - now)
  return cmsgpack.pack(out)
end
