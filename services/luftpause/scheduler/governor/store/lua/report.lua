-- What did the answer to a call say? `number` above 0: it was granted without the store, and is told when the store is back.

sweep(32)
for _, told in ipairs(ask.scopes) do configured(told) end

local at = now - ask.age_seconds
local lease, known = nil, false

if ask.number > 0 then
  local held = lease_of(ask.want)
  if held and held.fence == ask.fence then end_lease(held) end -- restored just before it ended
  if tonumber(redis.call('GET', TOLD) or 0) < ask.number then
    redis.call('SET', TOLD, ask.number, 'PX', KEEP_MS)
    lease = {granted = now - ask.granted_seconds, episode = -1, probe = false, caller = ask.caller, cost = ask.cost}
    known = true
  end
elseif ask.want ~= '' then
  lease = lease_of(ask.want)
  known = lease ~= nil and lease.fence == ask.fence
end

if known and ask.part_number > 0 and ask.part_number <= lease.parts then -- told twice
  known = false
elseif known and ask.part_number > 0 then -- of a chunk: the rest stays lent
  lease.parts = ask.part_number
  for _, cost in ipairs(ask.part) do
    for _, held in ipairs(lease.cost) do
      if held.name == cost.name then
        local units = math.min(cost.units, held.units)
        held.units = held.units - units
        give_back(cost.name, units)
      end
    end
  end
  put_lease(lease)
elseif known and ask.number == 0 then
  end_lease(lease)
end

local told = {}
local empty, stale = {}, 0
for _, sample in ipairs(ask.samples) do
  if sampled(sample, known and lease.granted or -INF, at) then told[sample.scope] = true end
  if sample.has_remaining and sample.remaining <= 0 and scope_of(sample.scope) then
    empty[#empty + 1] = sample.scope
    if is_stale(sample, at) then stale = stale + 1 end
  end
end

local observed = ask.want == '' and ask.number == 0
if observed and ask.outcome == 'limited' then -- nobody announced it: where there was a block a moment ago it may be from before
  local calm = breaker.mode == 'closed' and breaker.window >= INF
  known, lease = true, {granted = calm and now or -INF, episode = -1, probe = false, cost = {}}
end

if not known then
  if #ask.samples > 0 then wrote() end
  return reply({ok = false, why = observed and 'observed' or 'stale', nodes = nodes()})
end

local function is_of_this_window(name)
  local scope = scope_of(name)
  if not scope or scope.kind ~= 'fixed' or scope.reset_at >= INF then return true end
  local began = scope.reset_at - scope.window
  return at >= began or began > now -- a provider may tell an end that is farther than a window
end

local actual, whole = {}, {}
for _, used in ipairs(ask.actual) do actual[used.name] = used.units end
for _, name in ipairs(ask.whole or {}) do whole[name] = true end

local function used_of(cost) -- the same bounds as luftpause.scheduler.quota.reports
  local units, scope = actual[cost.name], scope_of(cost.name)
  if not units then units = ask.kind == 'too_large' and 0 or cost.units end -- not known: what was reserved
  if units ~= units then return cost.units end
  local least, most = whole[cost.name] and cost.units or 0, math.max(cost.units, scope and scope.limit or 0)
  return math.min(math.max(units, least), most)
end

for _, cost in ipairs(ask.part_number > 0 and ask.part or lease.cost) do
  if not told[cost.name] and is_of_this_window(cost.name) then charge(cost.name, used_of(cost)) end
end

local function begin_episode(mode, until_)
  breaker.mode, breaker.open_until, breaker.episode_at = mode, until_, until_
  breaker.episode, breaker.successes, breaker.window, breaker.probes = breaker.episode + 1, 0, 1, 0
  touch('breaker')
end

local function open(told_seconds)
  if breaker.mode == 'disabled' then return end
  local seconds = math.min(told_seconds, TOLD_SECONDS_MAX)
  begin_episode('open', math.max(now + math.max(0, seconds - ask.age_seconds) + rules.guard, breaker.open_until))
  scarce_for(breaker.open_until - now + rules.exclusive[3] + SCARCE_SECONDS)
  hint('blocked', breaker.open_until - now)
end

local function blocked()
  local fresh = lease.granted >= breaker.episode_at
  local telling = fresh and #empty == 0 -- of a limit that nobody announces
  local strikes = now - breaker.limited_at < rules.forget and breaker.strikes or 0
  if telling then strikes = strikes + 1 end
  local wait = ask.wait_seconds
  if wait < 0 and #empty > 0 and stale == #empty then
    wait = rules.capacity -- by the provider's clock the window has not ended yet
  elseif wait < 0 or (telling and strikes > 1) then
    local penalty = strikes == 0 and ask.penalty.none or math.min(ask.penalty.first * 2 ^ math.min(strikes - 1, 32), ask.penalty.most)
    wait = math.max(wait, penalty)
  end
  breaker.strikes, breaker.limited_at = strikes, now
  open(wait)
  for _, name in ipairs(empty) do
    local scope = scope_of(name)
    scope.blocked_until = math.max(scope.blocked_until, breaker.open_until)
    touch('s:' .. name)
  end
end

local function limited()
  if ask.kind == 'credit' then
    local until_ = ask.wait_seconds < 0 and INF or now + math.min(ask.wait_seconds, TOLD_SECONDS_MAX) + rules.guard
    begin_episode('disabled', math.max(until_, breaker.open_until))
    hint('blocked', breaker.open_until - now)
  elseif ask.kind == 'capacity' then
    open(ask.wait_seconds < 0 and rules.capacity or ask.wait_seconds)
  elseif ask.kind ~= 'concurrency' and ask.kind ~= 'too_large' then
    blocked()
  end
end

local function answered()
  if lease.granted < breaker.episode_at then return end
  if breaker.mode == 'half' then
    breaker.successes = breaker.successes + 1
    if breaker.successes >= rules.close_after then
      breaker.mode = 'closed'
      hint('closed', 0)
    end
    touch('breaker')
  elseif breaker.window < INF and breaker.mode == 'closed' then
    local window = breaker.window + 1
    breaker.window = window >= rules.window_max and INF or window
    touch('breaker')
  end
end

wrote()
if ask.outcome == 'ok' then
  answered()
elseif ask.outcome == 'limited' then
  limited()
elseif lease.probe and lease.episode == breaker.episode and breaker.mode == 'half' then
  open(rules.capacity)
end
tell_of_room()
return reply({ok = true, nodes = nodes()})
