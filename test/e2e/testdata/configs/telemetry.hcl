server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
telemetry {
  prometheus_retention_time = "24h"
  disable_hostname          = true
  statsd_address            = "127.0.0.1:8125"
  metrics_prefix            = "edge"
  prefix_filter             = ["+edge.raft", "-edge.http"]
  filter_default            = true
  circonus_api_token        = "unused"
}
