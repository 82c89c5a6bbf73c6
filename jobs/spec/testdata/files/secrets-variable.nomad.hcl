# A password from a variable of the job, in the environment and in a file.
job "mailer" {
  type = "batch"

  group "mailer" {
    task "mailer" {
      driver = "raw_exec"

      template {
        destination = "secrets/mail.env"
        env         = true
        data        = <<-ENV
          {{- with nomadVar "nomad/jobs/mailer" }}
          MAIL_USER={{ .user }}
          MAIL_PASSWORD={{ .password }}
          {{- end }}
        ENV
      }

      config {
        command = "/bin/sh"
        args    = ["-c", "test -n \"$MAIL_PASSWORD\" && echo mail of $MAIL_USER"]
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
