-- KV GET of the keys that put.lua wrote; QUERY=?stale in the environment is appended.
local query = os.getenv("QUERY") or ""
local n = 0
request = function()
  n = n + 1
  return wrk.format("GET", "/v1/kv/bench/" .. (n % 1000) .. query)
end
