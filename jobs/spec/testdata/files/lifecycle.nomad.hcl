# Tasks around a main one: before it, beside it, after it.
job "stages" {
  type = "batch"

  group "g" {
    shutdown_delay = "100ms"

    task "prepare" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = false
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo prepared > ${NOMAD_ALLOC_DIR}/data/state"]
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

    task "beside" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
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

    task "main" {
      driver = "raw_exec"
      leader = true
      config {
        command = "/bin/sh"
        args    = ["-c", "grep prepared ${NOMAD_ALLOC_DIR}/data/state && echo the main task ran"]
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

    task "tidy" {
      driver = "raw_exec"
      lifecycle {
        hook = "poststop"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "rm ${NOMAD_ALLOC_DIR}/data/state && echo tidied"]
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
