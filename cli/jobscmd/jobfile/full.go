package jobfile

// Full is two services that know each other, a task beside another one, a secret, and a canary. It runs on any host.
const Full = `# Two services: an API that is updated behind a canary, and a site that finds it in the catalog.
# The API reads a password from a variable, and waits until that is there:
#
#   corbel vars put nomad/jobs/shop password=s3cret
job "shop" {
  type = "service"

  group "api" {
    count = 2

    network {
      port "http" {}
    }

    # One new allocation beside the old ones: "job promote" lets it take over.
    update {
      canary           = 1
      max_parallel     = 1
      min_healthy_time = "3s"
      healthy_deadline = "1m"
      auto_revert      = true
      health_check     = "task_states"
    }

    service {
      name = "shop-api"
      port = "http"
    }

    task "api" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "echo api on $NOMAD_PORT_http, $(printf %s $PASSWORD | wc -c) secret bytes; exec sleep 86400"]
      }

      # The secret, as a variable of the environment. Where it changes, the task starts again.
      template {
        destination = "secrets/api.env"
        env         = true
        data        = "PASSWORD={{ with nomadVar \"nomad/jobs/shop\" }}{{ .password }}{{ end }}"
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }

    # It starts before the API, runs beside it, and ends with it.
    task "watcher" {
      driver = "raw_exec"

      lifecycle {
        hook    = "prestart"
        sidecar = true
      }

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do ls $NOMAD_ALLOC_DIR/logs; sleep 30; done"]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }

  group "web" {
    network {
      port "http" {}
    }

    service {
      name = "shop-web"
      port = "http"
    }

    task "web" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do echo the API is at $(cat $NOMAD_TASK_DIR/api); sleep 5; done"]
      }

      # Where the API is, from the catalog. The file is written again when that changes.
      template {
        destination = "local/api"
        change_mode = "noop"
        data        = "{{ range service \"shop-api\" }}{{ .Address }}:{{ .Port }} {{ end }}"
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
`
