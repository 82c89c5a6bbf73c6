server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
connect {
  enabled = true
}
ports {
  grpc             = 8502
  sidecar_min_port = 21000
  sidecar_max_port = 21255
}
enable_central_service_config = true
config_entries {
  bootstrap = [
    {
      kind = "proxy-defaults"
      name = "global"
      config {
        protocol = "http"
      }
    }
  ]
}
service {
  name = "frontend"
  port = 9090
  connect {
    sidecar_service {
      proxy {
        upstreams = [
          {
            destination_name = "backend"
            local_bind_port  = 9191
          }
        ]
        config {
          protocol = "http"
        }
      }
    }
  }
}
