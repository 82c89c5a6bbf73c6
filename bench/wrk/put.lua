-- KV PUT of 64 bytes to 1,000 keys: wrk -t2 -c16 -d10s --latency -s bench/wrk/put.lua http://127.0.0.1:8500
local value = string.rep("a", 64)
local n = 0
request = function()
  n = n + 1
  return wrk.format("PUT", "/v1/kv/bench/" .. (n % 1000), nil, value)
end
