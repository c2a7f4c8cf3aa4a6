-- Which of these leases are still there? They last on.

sweep(32)

local gone = {}
for _, one in ipairs(ask.leases) do
  local lease = lease_of(one.want)
  if lease and lease.fence == one.fence and lease.expires > now then
    lease.expires = now + one.lease_seconds
    put_lease(lease)
  else
    gone[#gone + 1] = one.want
  end
end
wrote()
return reply({ok = #gone == 0, gone = gone, nodes = nodes()})
