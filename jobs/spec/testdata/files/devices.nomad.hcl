# A GPU with enough memory, whichever model is the better one.
job "training" {
  type = "batch"

  group "train" {
    task "train" {
      driver = "docker"
      config {
        image   = "docker.io/library/python:3.12"
        command = "python3"
        args    = ["-c", "print('trained')"]
        runtime = "nvidia"
      }
      resources {
        cpu        = 2000
        memory     = 4096
        memory_max = 8192

        device "nvidia/gpu" {
          count = 2

          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "8 GiB"
          }

          affinity {
            attribute = "${device.model}"
            operator  = "regexp"
            value     = "A100"
            weight    = 60
          }
        }
      }
    }
  }
}
