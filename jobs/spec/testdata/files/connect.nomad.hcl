# Two services of the mesh: the front knows the back at an address of its own host.
job "mesh" {
  group "front" {
    network {
      mode = "host"
      port "http" {}
    }

    service {
      name = "front"
      port = "http"
      connect {
        sidecar_service {
          tags = ["proxy"]
          proxy {
            upstreams {
              destination_name = "back"
              local_bind_port  = 29191
            }
            config {
              protocol = "http"
            }
          }
        }
        sidecar_task {
          resources {
            cpu    = 100
            memory = 64
          }
          logs {
            max_files     = 1
            max_file_size = 5
          }
        }
      }
    }

    task "front" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo the back is at $NOMAD_UPSTREAM_ADDR_back; exec sleep 3600"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }

  group "back" {
    network {
      mode = "host"
      port "http" {}
    }

    service {
      name = "back"
      port = "http"
      connect {
        sidecar_service {}
      }
    }

    task "back" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["3600"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
