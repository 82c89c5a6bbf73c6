server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
limits {
  http_max_conns_per_client = 50
  kv_max_value_size         = 128
  txn_max_req_len           = 4096
  rpc_rate                  = 100
  rpc_max_burst             = 500
  https_handshake_timeout   = "5s"
  rpc_max_conns_per_client  = 100
  request_limits {
    mode       = "permissive"
    read_rate  = 1000
    write_rate = 500
  }
}
http_config {
  block_endpoints       = ["/v1/agent/monitor"]
  allow_write_http_from = ["127.0.0.0/8"]
  response_headers {
    "X-Edge" = "yes"
  }
}
performance {
  raft_multiplier   = 5
  leave_drain_time  = "1s"
  rpc_hold_timeout  = "7s"
}
raft_protocol           = 3
raft_snapshot_threshold = 8192
raft_logstore {
  backend = "wal"
}
session_ttl_min    = "15s"
default_query_time = "60s"
max_query_time     = "120s"
