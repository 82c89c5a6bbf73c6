server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
watches = [
  {
    type         = "key"
    key          = "app/config"
    handler_type = "script"
    args         = ["/bin/sh", "-c", "cat >>told"]
  },
  {
    type        = "service"
    service     = "redis"
    passingonly = true
    handler     = "cat >>services"
  }
]
