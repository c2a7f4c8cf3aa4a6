-- May this call go out? Decides and books in one step.

sweep(32)

local function granted(lease)
  return reply({ok = true, fence = lease.fence, lease_seconds = lease.expires - now, nodes = nodes()})
end

local held = lease_of(ask.want)
if held then return granted(held) end -- asked again: the same answer

local count, better = nodes()
local rank = ask.rank

local function refused(why, scope, retry)
  if why ~= 'better' and why ~= 'lost' then scarce_for(SCARCE_SECONDS) end
  waits(ask.waiting, WAIT_SECONDS)
  return reply({ok = false, why = why, scope = scope, retry_seconds = math.max(0.001, retry), nodes = count})
end

if lost or behind then return refused('lost', '', 0.02) end
if breaker.mode == 'open' or breaker.mode == 'disabled' then return refused('open', '', breaker.open_until - now) end

local slow = breaker.mode == 'half' or breaker.window < INF
if slow then
  local opens = breaker.open_until + rules.exclusive[rank + 1]
  if now < opens then return refused('exclusive', '', opens - now) end
end
if ask.chunk and slow then return refused('slow', '', 0.25) end
if breaker.mode == 'half' then
  if breaker.probes >= rules.probes_max then return refused('window', '', 0.25) end
elseif redis.call('HLEN', LEASES) >= breaker.window then
  return refused('window', '', 0.25)
end
if meta.scarce_until > now then -- a better class waits elsewhere
  for class = 1, rank do
    if better[class] > 0 then return refused('better', '', 0.1) end
  end
end

local function short_of(told)
  local scope = configured(told)
  if now < scope.blocked_until then return 'blocked', scope.blocked_until - now end
  if told.cost > scope.limit then -- the node doubts that limit: one call finds out
    if scope.out > scope.limit then return 'tried', 0.25 end
    return nil
  end
  if scope.kind == 'concurrent' then
    if left(scope) < told.cost - NEAR then return 'concurrent', 0.25 end
    return nil
  end
  local most = capacity(scope)
  local leave = math.min(told.headroom, math.max(0, most - told.cost))
  local lacks = math.min(told.cost, most) + leave - left(scope)
  if lacks <= NEAR then return nil end
  local doubtful = scope.kind == 'fixed' and scope.sample_at > -INF and now >= scope.at + TOLD_SECONDS_MAX
  if doubtful and scope.out <= NEAR then return nil end
  if scope.kind == 'bucket' then return 'room', lacks * scope.window / scope.limit end
  return 'room', scope.reset_at < INF and scope.reset_at - now or 1
end

for _, told in ipairs(ask.scopes) do
  if told.cost > 0 then
    local why, retry = short_of(told)
    if why then return refused(why, told.name, retry) end
  else
    configured(told)
  end
end

meta.fence = math.max(meta.fence, ask.fence_max) + 1
wrote()
local lease = {want = ask.want, fence = meta.fence, caller = ask.caller, granted = now, expires = now + ask.lease_seconds,
  episode = breaker.episode, probe = breaker.mode == 'half', parts = 0, cost = {}}
for _, told in ipairs(ask.scopes) do
  if told.cost > 0 then
    take(told.name, told.cost)
    lease.cost[#lease.cost + 1] = {name = told.name, units = told.cost}
  end
end
if lease.probe then
  breaker.probes = breaker.probes + 1
  touch('breaker')
end
put_lease(lease)
if now - meta.used_at > IDLE_SECONDS then hint('used', 0) end -- nodes where nobody calls look at it less and less
meta.used_at = now
return granted(lease)
