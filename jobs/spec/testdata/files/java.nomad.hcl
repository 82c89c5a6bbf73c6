# A JAR with its own settings of the virtual machine.
job "search" {
  group "search" {
    count = 1

    network {
      port "http" {}
      port "admin" {
        to = 9200
      }
    }

    service {
      name = "search"
      port = "http"
      canary_tags = ["next"]
      check {
        type            = "grpc"
        grpc_service    = "search.v1.Health"
        grpc_use_tls    = true
        tls_skip_verify = true
        interval        = "10s"
        timeout         = "2s"
      }
      check {
        name     = "index"
        type     = "script"
        task     = "search"
        command  = "/bin/test"
        args     = ["-d", "local/index"]
        interval = "30s"
        timeout  = "5s"
      }
    }

    task "search" {
      driver = "java"
      artifact {
        source      = "git::https://git.example.com/search/release.git"
        destination = "local/release"
        options {
          ref   = "v12"
          depth = 1
        }
      }
      config {
        jar_path    = "local/release/search.jar"
        jvm_options = ["-Xmx384m", "-XX:+UseSerialGC"]
        args        = ["--port", "${NOMAD_PORT_http}"]
      }
      resources {
        cpu    = 400
        memory = 512
      }
    }
  }
}
