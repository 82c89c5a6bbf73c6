# A service of the scheduler's own catalog, and a client that finds it by a template.
job "native" {
  update {
    health_check     = "task_states"
    min_healthy_time = "100ms"
    healthy_deadline = "60s"
  }

  group "server" {
    network {
      port "http" {}
    }

    service {
      name     = "native-api"
      provider = "nomad"
      port     = "http"
      tags     = ["v1"]
    }

    task "server" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo serving on ${NOMAD_PORT_http}; exec sleep 3600"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
      logs {
        max_files     = 1
        max_file_size = 2
      }
    }
  }

  group "client" {
    task "client" {
      driver = "raw_exec"
      template {
        destination = "local/where"
        change_mode = "noop"
        data        = "{{ range nomadService \"native-api\" }}{{ .Address }}:{{ .Port }} {{ .Tags | join \",\" }}\n{{ end }}"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "cat local/where; exec sleep 3600"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
      logs {
        max_files     = 1
        max_file_size = 2
      }
    }
  }
}
