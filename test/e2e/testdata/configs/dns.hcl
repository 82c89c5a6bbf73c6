server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
domain           = "example.org"
alt_domain       = "test."
recursors        = ["127.0.0.1:1"]
dns_config {
  allow_stale  = true
  max_stale    = "87600h"
  node_ttl     = "30s"
  only_passing = true
  service_ttl {
    "*"    = "5s"
    "web*" = "7s"
  }
  udp_answer_limit   = 3
  a_record_limit     = 1
  recursor_strategy  = "random"
  recursor_timeout   = "1s"
  disable_compression = true
  enable_truncate    = true
}
service {
  name = "web"
  port = 80
}
