# An API behind one canary that is promoted when it is healthy, and a site that changes as a whole (blue and green).
variable "text" {
  type    = string
  default = "one"
}

job "shop" {
  update {
    health_check     = "task_states"
    min_healthy_time = "100ms"
    healthy_deadline = "60s"
    max_parallel     = 1
    auto_revert      = true
  }

  group "api" {
    count = 2

    update {
      canary       = 1
      auto_promote = true
    }

    task "api" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo api ${var.text}; exec sleep 3600"]
      }
      logs {
        max_files     = 1
        max_file_size = 2
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }

  group "site" {
    count = 2

    update {
      canary       = 2
      max_parallel = 2
      auto_promote = true
    }

    task "site" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo site ${var.text}; exec sleep 3600"]
      }
      logs {
        max_files     = 1
        max_file_size = 2
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
