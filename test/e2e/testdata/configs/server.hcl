# A single server, as a first tutorial has it.
datacenter       = "dc1"
data_dir         = "/opt/consul"
log_level        = "INFO"
server           = true
bootstrap_expect = 1
bind_addr        = "{{ GetAllInterfaces | include \"name\" \"^lo\" | include \"type\" \"IPv4\" | limit 1 | join \"address\" \" \" }}"
client_addr      = "127.0.0.1"
enable_syslog    = false
leave_on_terminate = false
ui_config {
  enabled = true
}
node_meta {
  rack = "r7"
}
performance {
  raft_multiplier = 1
}
