# Each night, and on the first of the month too: a batch that must not overlap with itself.
job "report" {
  type = "batch"

  periodic {
    crons            = ["30 2 * * *", "0 5 1 * *"]
    time_zone        = "Europe/Berlin"
    prohibit_overlap = true
  }

  group "report" {
    reschedule {
      attempts       = 2
      interval       = "6h"
      delay          = "30s"
      delay_function = "fibonacci"
      max_delay      = "10m"
      unlimited      = false
    }

    ephemeral_disk {
      size = 200
    }

    task "write" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "date -u > ${NOMAD_ALLOC_DIR}/data/report && cat ${NOMAD_ALLOC_DIR}/data/report"]
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
