-- An operator says that a target that was out of credit may be used again.

if breaker.mode == 'disabled' then
  breaker.mode, breaker.open_until, breaker.episode_at = 'open', now, now
  touch('breaker')
  wrote()
  hint('room', 0)
end
return reply({ok = true, nodes = nodes()})
