-- KV v1 reads of 1,000 secrets that secrets-put.lua wrote, VAULT_TOKEN in the environment:
-- wrk -t4 -c16 -d30s --latency -s bench/wrk/secrets-get.lua http://127.0.0.1:8200
local mount = os.getenv("MOUNT") or "secret"
wrk.headers["X-Vault-Token"] = os.getenv("VAULT_TOKEN")
init = function() math.randomseed(os.time()) end
request = function()
  return wrk.format("GET", "/v1/" .. mount .. "/secret-" .. math.random(0, 999))
end
