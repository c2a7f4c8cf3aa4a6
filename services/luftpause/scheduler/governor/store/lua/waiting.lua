-- Who waits on this node, and how do things stand?

sweep(256)
for _, told in ipairs(ask.scopes) do configured(told) end
waits(ask.waiting, WAIT_SECONDS)
return reply({ok = true, nodes = nodes()})
