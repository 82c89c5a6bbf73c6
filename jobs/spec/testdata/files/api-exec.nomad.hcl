# A binary from an artifact, isolated by the exec driver, as another user.
variable "release" {
  type        = string
  default     = "2.4.1"
  description = "which release of the API runs"
  validation {
    condition     = length(var.release) > 4
    error_message = "The release must be like 1.2.3."
  }
}

job "api" {
  datacenters = ["dc1"]

  group "api" {
    count = 2

    restart {
      attempts = 4
      interval = "10m"
      delay    = "20s"
      mode     = "delay"
    }

    network {
      port "http" {}
    }

    task "api" {
      driver       = "exec"
      user         = "nobody"
      kill_timeout = "25s"
      kill_signal  = "SIGTERM"

      artifact {
        source      = "https://releases.example.com/api/${var.release}/api_linux_amd64.tar.gz"
        destination = "local/bin"
        options {
          checksum = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        }
        headers {
          Accept = "application/octet-stream"
        }
      }

      config {
        command = "local/bin/api"
        args    = ["-listen", "${NOMAD_ADDR_http}", "-workers", "4"]
      }

      env {
        RELEASE  = var.release
        LOG_MODE = upper("json")
      }

      resources {
        cores  = 1
        memory = 200
      }
    }
  }
}
