-- KV v1 writes of random secrets, VAULT_TOKEN in the environment:
-- wrk -t6 -c16 -d30s --latency -s bench/wrk/secrets-put.lua http://127.0.0.1:8200
local mount = os.getenv("MOUNT") or "secret"
local body = '{"value":"' .. string.rep("a", 100) .. '"}'
wrk.headers["X-Vault-Token"] = os.getenv("VAULT_TOKEN")
init = function() math.randomseed(os.time()) end
request = function()
  return wrk.format("PUT", "/v1/" .. mount .. "/secret-" .. math.random(0, 9999), nil, body)
end
