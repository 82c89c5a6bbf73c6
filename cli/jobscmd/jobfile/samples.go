package jobfile

import "strings"

// Uncommented is a job file without its comments.
func Uncommented(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// Sample runs on any host, without root and without docker.
const Sample = `# A job is what is to run. This one runs on any host, without root and without docker.
job "example" {
  # service jobs run on; batch jobs end. system jobs run on each node.
  type = "service"

  # What runs together on one node, so many times.
  group "web" {
    count = 1

    # A port that the scheduler picks: NOMAD_PORT_http in the task's environment.
    network {
      port "http" {}
    }

    # A task that fails is restarted here twice in half an hour, and then on another node.
    restart {
      attempts = 2
      interval = "30m"
      delay    = "5s"
      mode     = "fail"
    }

    # A new version replaces the old one step by step, and goes back when it does not become healthy.
    update {
      max_parallel     = 1
      min_healthy_time = "3s"
      healthy_deadline = "1m"
      auto_revert      = true
      health_check     = "task_states"
    }

    task "server" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "echo serving on port $NOMAD_PORT_http; while true; do date; sleep 5; done"]
      }

      resources {
        cpu    = 50 # MHz
        memory = 32 # MB
      }
    }
  }
}
`

// Fleet has two groups, one with a canary.
const Fleet = `# Two groups of one job: an API that is updated behind a canary, and a worker that uses it.
variable "replicas" {
  type    = number
  default = 2
}

job "fleet" {
  type = "service"

  group "api" {
    count = var.replicas

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
      name     = "fleet-api"
      provider = "nomad"
      port     = "http"
    }

    task "api" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo api on $NOMAD_PORT_http; exec sleep 86400"]
      }
      resources {
        cpu    = 50
        memory = 32
      }
    }
  }

  group "worker" {
    task "worker" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do echo working; sleep 5; done"]
      }
      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
`
