# Spread by datacenter and rack, towards fast disks and away from the hosts of tests.
job "cache" {
  datacenters = ["*"]
  node_pool   = "default"

  spread {
    attribute = "${node.datacenter}"
    weight    = 80
    target "dc1" {
      percent = 60
    }
    target "dc2" {
      percent = 40
    }
  }

  affinity {
    attribute = "${meta.purpose}"
    value     = "test"
    weight    = -75
  }

  group "redis" {
    count = 6

    spread {
      attribute = "${meta.rack}"
    }

    affinity {
      attribute = "${attr.unique.storage.volume}"
      operator  = "regexp"
      value     = "nvme"
      weight    = 50
    }

    network {
      port "redis" {
        to = 6379
      }
    }

    task "redis" {
      driver = "docker"
      config {
        image = "docker.io/library/redis:7"
        ports = ["redis"]
        args  = ["--maxmemory", "${NOMAD_MEMORY_LIMIT}mb", "--appendonly", "no"]
      }
      resources {
        cpu    = 200
        memory = 512
      }
    }
  }
}
