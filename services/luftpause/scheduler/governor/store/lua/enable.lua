-- An operator says that the target may be used again: what was told of it is forgotten, and it begins with one call, then slowly.

sweep(32)

local function forget(scope)
  local ends_late = scope.reset_at < INF and now + scope.window + NEAR < scope.reset_at
  local told = scope.sample_at > -INF or scope.limit ~= scope.told_limit or ends_late
  scope.limit, scope.blocked_until = scope.told_limit, -INF
  if told then -- what was counted here, where nobody tells, stays
    scope.remaining, scope.at, scope.reset_at, scope.sample_at = capacity(scope), now, INF, -INF
  end
end

for _, told in ipairs(ask.scopes) do configured(told) end
for _, field in ipairs(redis.call('HKEYS', LEDGER)) do -- also of limits that only other nodes know
  if string.sub(field, 1, 2) == 's:' then
    forget(scope_of(string.sub(field, 3)))
    touch(field)
  end
end
for field, scope in pairs(records) do -- and of those that have just been configured
  if scope and string.sub(field, 1, 2) == 's:' then
    forget(scope)
    touch(field)
  end
end
breaker.mode, breaker.open_until, breaker.episode_at = 'open', now, now
breaker.episode, breaker.window, breaker.probes, breaker.successes = breaker.episode + 1, 1, 0, 0
breaker.strikes, breaker.limited_at = 0, -INF
touch('breaker')
meta.enabled_at = math.max(meta.enabled_at or -1, now)
meta.scarce_until = -INF
wrote()
hint('closed', 0) -- also nodes where nobody waits look
return reply({ok = true, nodes = nodes()})
