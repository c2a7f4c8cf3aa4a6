-- A node brings what it has: leases that the store does not know, and, where the store has lost writes, what was left as the node saw it.

for _, told in ipairs(ask.scopes) do configured(told) end
for _, told in ipairs(ask.lost and ask.left or {}) do
  local scope = scope_of(told.name)
  if scope and scope.kind == 'fixed' and scope.reset_at >= INF and told.reset_seconds >= 0 then scope.reset_at = now + told.reset_seconds end
end
for _, one in ipairs(ask.leases) do
  local held = lease_of(one.want)
  if not held or held.fence ~= one.fence then
    if held then end_lease(held) end
    local lease = {want = one.want, fence = one.fence, caller = one.caller, granted = now - one.granted_seconds,
      expires = now + one.lease_seconds, episode = -1, probe = false, parts = 0, cost = one.cost}
    for _, cost in ipairs(lease.cost) do take(cost.name, cost.units) end
    put_lease(lease)
  end
end
if ask.lost then
  for _, told in ipairs(ask.left) do
    local scope = scope_of(told.name)
    if scope and scope.kind ~= 'concurrent' then
      scope.remaining = math.min(scope.remaining, told.units + scope.out)
      touch('s:' .. told.name)
    end
  end
  if ask.blocked_seconds > 0 and breaker.open_until < now + ask.blocked_seconds then
    breaker.mode = ask.disabled and 'disabled' or 'open'
    breaker.open_until, breaker.episode_at = now + ask.blocked_seconds, now + ask.blocked_seconds
    breaker.episode, breaker.window, breaker.probes, breaker.successes = breaker.episode + 1, 1, 0, 0
    touch('breaker')
  end
end
if meta.learning_until < now + ask.learning_seconds then meta.learning_until = now + ask.learning_seconds end
meta.fence = math.max(meta.fence, ask.fence_max)
behind = false
wrote()
return reply({ok = true, nodes = nodes()})
