server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
retry_join       = ["provider=softlayer datacenter=dal06 tag_value=consul", "{{ GetAllInterfaces | include \"name\" \"^lo\" | include \"type\" \"IPv4\" | limit 1 | join \"address\" \" \" }}:1"]
retry_interval   = "15s"
retry_max        = 0
skip_leave_on_interrupt = true
autopilot {
  cleanup_dead_servers      = true
  last_contact_threshold    = "300ms"
  max_trailing_logs         = 500
  server_stabilization_time = "15s"
}
