server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
service {
  name = "web"
  id   = "web-1"
  port = 8080
  tags = ["primary", "v1"]
  meta = {
    version = "1.2"
  }
  tagged_addresses {
    lan = {
      address = "192.168.0.55"
      port    = 8000
    }
  }
  weights {
    passing = 5
    warning = 1
  }
  enable_tag_override = true
  check {
    id     = "web-ttl"
    ttl    = "1h"
    status = "passing"
  }
  checks = [
    {
      name   = "second"
      ttl    = "1h"
      status = "warning"
    }
  ]
}
services {
  name = "db"
  port = 5432
}
services {
  name        = "db"
  id          = "db-2"
  socket_path = "/run/db.sock"
}
