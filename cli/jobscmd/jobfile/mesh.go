package jobfile

// Mesh has two groups that talk through the mesh.
const Mesh = `# Two services, each with an Envoy beside it: what goes between them is mutual TLS, and intentions say who may
# talk to whom. The node needs "envoy" in its PATH, or the pair connect.envoy_binary in its meta; python3 answers HTTP.
job "mesh" {
  type = "service"

  group "api" {
    network {
      port "http" {}
    }

    # The proxy is a task of its own, connect-proxy-mesh-api, which the server adds.
    service {
      name = "mesh-api"
      port = "http"
      connect {
        sidecar_service {}
      }
    }

    # A new version is tried by one allocation beside the old one: "job promote" lets it take over.
    update {
      canary           = 1
      max_parallel     = 1
      min_healthy_time = "3s"
      healthy_deadline = "1m"
      health_check     = "task_states"
    }

    task "api" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "cd local && exec python3 -m http.server --bind $NOMAD_IP_http $NOMAD_PORT_http"]
      }
      # A value of the catalog's keys; the page is there before the task starts.
      template {
        data        = "hello from {{ keyOrDefault \"mesh/name\" \"the mesh\" }}\n"
        destination = "local/index.html"
        change_mode = "noop"
      }
      resources {
        cpu    = 50
        memory = 64
      }
    }
  }

  group "web" {
    # What the proxy of "web" listens on at 127.0.0.1 leads to "mesh-api".
    service {
      name = "mesh-web"
      port = "9090"
      connect {
        sidecar_service {
          proxy {
            upstreams {
              destination_name = "mesh-api"
              local_bind_port  = 29090
            }
          }
        }
        sidecar_task {
          resources {
            cpu    = 100
            memory = 64
          }
        }
      }
    }

    task "web" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", <<-EOS
          while true; do
            python3 -c "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())" \
              "http://$NOMAD_UPSTREAM_ADDR_mesh_api/"
            sleep 2
          done
        EOS
        ]
      }
      resources {
        cpu    = 50
        memory = 64
      }
    }
  }
}
`
