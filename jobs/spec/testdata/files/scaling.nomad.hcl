# Bounds within which a count may be scaled, with what an autoscaler is to look at.
job "elastic" {
  group "web" {
    count = 2

    scaling {
      enabled = true
      min     = 1
      max     = 4

      policy {
        cooldown            = "1m"
        evaluation_interval = "15s"

        check "load" {
          source = "prometheus"
          query  = "avg(load)"
          strategy "target-value" {
            target = 70
          }
        }
      }
    }

    update {
      health_check     = "task_states"
      min_healthy_time = "100ms"
      healthy_deadline = "60s"
    }

    task "web" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["3600"]
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
