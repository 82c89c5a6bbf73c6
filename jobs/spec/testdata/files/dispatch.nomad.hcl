# A parameterized job: each dispatch brings a payload, and says who wants it.
job "thumbnail" {
  type = "batch"

  parameterized {
    payload       = "required"
    meta_required = ["customer"]
    meta_optional = ["size"]
  }

  meta {
    size = "128"
  }

  group "work" {
    restart {
      attempts = 1
      mode     = "fail"
    }

    task "resize" {
      driver = "raw_exec"

      dispatch_payload {
        file = "input.txt"
      }

      config {
        command = "/bin/sh"
        args    = ["-c", "echo $NOMAD_META_customer $NOMAD_META_size $(wc -c < local/input.txt) bytes"]
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
