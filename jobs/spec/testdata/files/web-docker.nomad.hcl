# A web server in a container, behind a static port, replaced one at a time and taken back when it fails.
job "storefront" {
  datacenters = ["dc1", "eu-*"]
  type        = "service"
  priority    = 70

  meta {
    owner = "shop@example.com"
  }

  update {
    max_parallel      = 1
    min_healthy_time  = "15s"
    healthy_deadline  = "4m"
    progress_deadline = "12m"
    auto_revert       = true
  }

  group "nginx" {
    count = 3

    network {
      mode = "host"
      port "http" {
        static = 8080
        to     = 80
      }
      port "metrics" {}
    }

    service {
      name = "storefront"
      port = "http"
      tags = ["public", "version-${NOMAD_META_release}"]

      check {
        name     = "alive"
        type     = "http"
        path     = "/healthz"
        interval = "10s"
        timeout  = "2s"
        header {
          X-Probe = ["scheduler"]
        }
        check_restart {
          limit = 3
          grace = "60s"
        }
      }
    }

    task "server" {
      driver = "docker"

      config {
        image        = "docker.io/library/nginx:1.27"
        ports        = ["http", "metrics"]
        network_mode = "bridge"
        volumes      = ["local/conf:/etc/nginx/conf.d:ro"]
        cap_drop     = ["ALL"]
        cap_add      = ["NET_BIND_SERVICE", "CHOWN", "SETUID", "SETGID"]
        ulimit {
          nofile = "8192:8192"
        }
        logging {
          type = "json-file"
          config {
            max-size = "5m"
          }
        }
      }

      meta {
        release = "7"
      }

      template {
        destination   = "local/conf/default.conf"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        data          = <<-CONF
          server {
            listen 80;
            location /healthz { return 200 "ok\n"; }
          }
        CONF
      }

      logs {
        max_files     = 4
        max_file_size = 8
      }

      resources {
        cpu        = 300
        memory     = 128
        memory_max = 256
      }
    }
  }
}
