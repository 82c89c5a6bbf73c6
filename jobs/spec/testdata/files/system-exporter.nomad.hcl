# On every host of two pools' classes, with the host's own network and folders.
job "host-metrics" {
  type     = "system"
  priority = 90

  constraint {
    attribute = "${node.class}"
    operator  = "regexp"
    value     = "^(large|small)$"
  }

  update {
    max_parallel = 2
    stagger      = "20s"
  }

  group "exporter" {
    network {
      mode = "host"
      port "metrics" {
        static = 9100
      }
    }

    service {
      name     = "host-metrics"
      provider = "nomad"
      port     = "metrics"
      check {
        type     = "tcp"
        interval = "15s"
        timeout  = "3s"
      }
    }

    task "exporter" {
      driver = "docker"
      config {
        image        = "quay.io/prometheus/node-exporter:v1.8.2"
        network_mode = "host"
        pid_mode     = "host"
        args         = ["--path.rootfs=/host"]
        mount {
          type     = "bind"
          source   = "/"
          target   = "/host"
          readonly = true
          bind_options {
            propagation = "rslave"
          }
        }
      }
      resources {
        cpu    = 50
        memory = 64
      }
    }
  }
}
