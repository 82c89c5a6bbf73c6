server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
log_level        = "ERROR"
node_meta {
  first  = "1"
  second = "1"
}
service {
  name = "one"
}
