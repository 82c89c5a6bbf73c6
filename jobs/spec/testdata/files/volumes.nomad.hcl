# A database on a volume of its host, with a disk that moves along.
job "database" {
  group "postgres" {
    volume "data" {
      type      = "host"
      source    = "postgres-data"
      read_only = false
    }

    volume "certificates" {
      type      = "host"
      source    = "certificates"
      read_only = true
    }

    ephemeral_disk {
      size    = 1000
      sticky  = true
      migrate = true
    }

    network {
      port "db" {
        static = 5432
      }
    }

    stop_after_client_disconnect = "2m"

    task "postgres" {
      driver = "docker"

      volume_mount {
        volume      = "data"
        destination = "/var/lib/postgresql/data"
      }

      volume_mount {
        volume           = "certificates"
        destination      = "/certificates"
        read_only        = true
        propagation_mode = "host-to-task"
      }

      config {
        image    = "docker.io/library/postgres:16"
        ports    = ["db"]
        shm_size = 268435456
      }

      env = {
        POSTGRES_DB       = "shop"
        POSTGRES_PASSWORD = "only-for-the-first-start"
      }

      kill_signal  = "SIGINT"
      kill_timeout = "30s"

      resources {
        cpu    = 500
        memory = 1024
      }
    }
  }
}
