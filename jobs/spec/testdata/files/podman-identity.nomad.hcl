# A container without a daemon that shows who it is to others.
job "courier" {
  group "courier" {
    task "courier" {
      driver = "podman"

      config {
        image           = "docker.io/library/alpine:3.20"
        command         = "sleep"
        args            = ["3600"]
        readonly_rootfs = true
        tmpfs           = ["/tmp"]
      }

      identity {
        env  = true
        file = true
      }

      identity {
        name        = "aws"
        aud         = ["sts.amazonaws.com"]
        file        = true
        ttl         = "1h"
        change_mode = "noop"
      }

      consul {}

      service {
        name         = "courier"
        address_mode = "host"
        meta {
          zone = "a"
        }
        weights {
          passing = 3
          warning = 1
        }
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
