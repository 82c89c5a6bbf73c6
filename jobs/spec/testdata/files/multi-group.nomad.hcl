# Groups made by a loop over a map, with locals, functions and variables.
variables {
  prefix = "part"
  log    = "info"
}

variable "parts" {
  type = map(number)
  default = {
    red  = 1
    blue = 2
  }
}

locals {
  base = {
    cpu    = 20
    memory = 16
  }
  names = join(",", [for name, count in var.parts : format("%s-%s", var.prefix, name)])
}

job "parts" {
  update {
    health_check     = "task_states"
    min_healthy_time = "100ms"
    healthy_deadline = "60s"
  }

  dynamic "group" {
    for_each = var.parts
    labels   = [group.key]
    content {
      count = group.value
      task "work" {
        driver = "raw_exec"
        config {
          command = "/bin/sh"
          args    = ["-c", "echo ${group.key} of ${local.names}; exec sleep 3600"]
        }
        env {
          LOG   = var.log
          TITLE = title(group.key)
        }
        resources {
          cpu    = local.base.cpu
          memory = local.base.memory
        }
        logs {
          max_files     = 1
          max_file_size = 2
        }
      }
    }
  }

  group "fixed" {
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = [tostring(30 * 120)]
      }
      resources {
        cpu    = local.base.cpu
        memory = local.base.memory
      }
      logs {
        max_files     = 1
        max_file_size = 2
      }
    }
  }
}
