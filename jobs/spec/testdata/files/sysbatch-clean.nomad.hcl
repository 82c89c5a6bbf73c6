# Once on every Linux host.
job "clean" {
  type = "sysbatch"

  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }

  group "clean" {
    task "clean" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo cleaning ${node.unique.name} in ${node.datacenter}"]
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
