-- What was never sent, or what is left of a chunk, comes back.

sweep(32)

local lease = lease_of(ask.want)
local known = lease ~= nil and lease.fence == ask.fence
if known then
  end_lease(lease)
  wrote()
  tell_of_room()
end
return reply({ok = known, nodes = nodes()})
