-- An operator says that a target that was out of credit may be used again.

if breaker.mode == 'disabled' then
  breaker.mode, breaker.open_until, breaker.episode_at = 'open', now, now
  touch('breaker')
  wrote()
  hint('closed', 0) -- also nodes where nobody waits look
end
return reply({ok = true, nodes = nodes()})
