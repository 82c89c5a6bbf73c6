# Secrets by templates: a password with a lease, a certificate, and settings of the catalog.
job "billing" {
  vault {
    role        = "billing"
    change_mode = "restart"
  }

  group "billing" {
    consul {}

    task "billing" {
      driver = "exec"

      config {
        command = "/usr/bin/env"
      }

      template {
        destination = "secrets/db.env"
        env         = true
        data        = <<-ENV
          {{- with secret "database/creds/billing" }}
          DB_USER={{ .Data.username }}
          DB_PASSWORD={{ .Data.password | toJSON }}
          {{- end }}
        ENV
      }

      template {
        destination   = "secrets/tls.pem"
        perms         = "0600"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        splay         = "20s"
        data          = "{{ with pkiCert \"pki/issue/billing\" \"common_name=billing.example.com\" \"ttl=24h\" }}{{ .Cert }}{{ .Key }}{{ end }}"
      }

      template {
        destination          = "local/settings.ini"
        left_delimiter       = "[["
        right_delimiter      = "]]"
        error_on_missing_key = true
        change_mode          = "script"
        change_script {
          command       = "/bin/kill"
          args          = ["-HUP", "1"]
          timeout       = "5s"
          fail_on_error = true
        }
        wait {
          min = "5s"
          max = "1m"
        }
        data = <<-INI
          currency = [[ keyOrDefault "billing/currency" "EUR" ]]
          [[ range service "ledger" ]]ledger = [[ .Address ]]:[[ .Port ]]
          [[ end ]]
        INI
      }

      resources {
        cpu    = 100
        memory = 128
      }
    }
  }
}
