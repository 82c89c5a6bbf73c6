# What happens when a node is away: at the edge tasks go on, in the middle they are replaced.
job "edge" {
  group "sensor" {
    disconnect {
      lost_after = "6h"
      replace    = false
      reconcile  = "keep_original"
    }

    reschedule {
      delay          = "30s"
      delay_function = "exponential"
      max_delay      = "30m"
      unlimited      = true
    }

    migrate {
      max_parallel     = 1
      health_check     = "task_states"
      min_healthy_time = "5s"
      healthy_deadline = "2m"
    }

    task "sensor" {
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

  group "gateway" {
    max_client_disconnect = "10m"

    task "gateway" {
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
