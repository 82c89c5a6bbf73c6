server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
primary_datacenter = "dc1"
acl = {
  enabled                  = true
  default_policy           = "deny"
  down_policy              = "extend-cache"
  enable_token_persistence = true
  tokens {
    master = "b1gs33cr3t-0000-0000-0000-000000000001"
  }
}
