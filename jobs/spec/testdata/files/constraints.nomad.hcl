# Every kind of constraint that job files use.
job "picky" {
  constraint {
    attribute = "${attr.kernel.version}"
    operator  = "version"
    value     = ">= 4.15, < 99"
  }

  constraint {
    attribute = "${attr.nomad.version}"
    operator  = "semver"
    value     = ">= 1.6.0"
  }

  constraint {
    attribute = "${attr.cpu.arch}"
    operator  = "set_contains_any"
    value     = "amd64,arm64"
  }

  constraint {
    attribute = "${attr.os.signals}"
    operator  = "set_contains"
    value     = "SIGTERM,SIGKILL"
  }

  constraint {
    attribute = "${attr.unique.hostname}"
    operator  = "is_set"
  }

  constraint {
    attribute = "${meta.retired}"
    operator  = "is_not_set"
  }

  constraint {
    attribute = "${attr.cpu.numcores}"
    operator  = ">="
    value     = "1"
  }

  constraint {
    attribute = "${node.pool}"
    operator  = "!="
    value     = "gpu"
  }

  group "one" {
    constraint {
      distinct_hosts = true
    }

    constraint {
      distinct_property = "${meta.rack}"
      value             = "2"
    }

    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
