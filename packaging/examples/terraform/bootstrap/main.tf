# What a cloud's instances need to become a cluster, as cloud-init. It needs no provider: any of them takes the outputs.

variable "servers" {
  description = "Addresses of the servers: 1, 3 or 5, fixed ones"
  type        = list(string)
  validation {
    condition     = contains([1, 3, 5], length(var.servers))
    error_message = "There must be 1, 3 or 5 servers."
  }
}

variable "package_url" {
  description = "Where instances get the package corbel_VERSION_ARCH.deb"
  type        = string
}

variable "package_sha256" {
  description = "Its checksum, from SHA256SUMS of the release"
  type        = string
  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.package_sha256))
    error_message = "The checksum must be 64 hexadecimal digits."
  }
}

variable "encrypt" {
  description = "Key for gossip, of `corbel keygen`"
  type        = string
  sensitive   = true
}

variable "ca" {
  description = "Certificate of the authority, PEM"
  type        = string
}

variable "certs" {
  description = "Certificate of each server, PEM"
  type        = list(string)
}

variable "keys" {
  description = "Private key of each server, PEM"
  type        = list(string)
  sensitive   = true
}

variable "data_device" {
  description = "Disk for the servers' state; \"\" is the root disk"
  type        = string
  default     = ""
}

locals {
  common = {
    data_dir   = "/var/lib/corbel"
    bind_addr  = "{{ GetPrivateIP }}"
    retry_join = var.servers
    encrypt    = var.encrypt
  }
  authority = { ca_file = "/etc/corbel.d/ca.pem", verify_outgoing = true }
  own       = { cert_file = "/etc/corbel.d/cert.pem", key_file = "/etc/corbel.d/key.pem", verify_incoming = true }
  rpc       = { verify_server_hostname = true }

  server = merge(local.common, {
    bootstrap_expect = length(var.servers)
    auto_encrypt     = { allow_tls = true }
    tls              = { defaults = merge(local.authority, local.own), internal_rpc = local.rpc }
  })
  agent = merge(local.common, {
    auto_encrypt = { tls = true }
    tls          = { defaults = local.authority, internal_rpc = local.rpc }
  })

  # The package makes the user and the folder, so files are written before and handed over after.
  install = [
    "curl -fsSLo /var/cache/corbel.deb '${var.package_url}'",
    "echo '${var.package_sha256}  /var/cache/corbel.deb' | sha256sum -c",
    "apt-get install -y /var/cache/corbel.deb",
    "chgrp corbel /etc/corbel.d/* && chmod 640 /etc/corbel.d/*",
  ]
  disk = var.data_device == "" ? [] : [
    "for i in $(seq 90); do [ -b ${var.data_device} ] && break; sleep 2; done",
    "blkid ${var.data_device} || mkfs.ext4 -L corbel ${var.data_device}",
    "echo 'LABEL=corbel /var/lib/corbel ext4 noatime 0 2' >> /etc/fstab",
    "mkdir -p /var/lib/corbel && mount /var/lib/corbel",
  ]
}

output "servers" {
  description = "User data of each server"
  sensitive   = true
  value = [for i, address in var.servers : join("\n", ["#cloud-config", yamlencode({
    write_files = [for path, content in {
      "ca.pem" = var.ca, "cert.pem" = var.certs[i], "key.pem" = var.keys[i], "server.json" = jsonencode(local.server)
    } : { path = "/etc/corbel.d/${path}", content = content, permissions = "0640" }]
    runcmd = concat(local.disk, local.install, ["systemctl enable --now corbel-server"])
  })])]
}

output "agent" {
  description = "User data of every other instance"
  sensitive   = true
  value = join("\n", ["#cloud-config", yamlencode({
    write_files = [for path, content in { "ca.pem" = var.ca, "agent.json" = jsonencode(local.agent) } :
    { path = "/etc/corbel.d/${path}", content = content, permissions = "0640" }]
    runcmd = concat(local.install, ["systemctl enable --now corbel-agent"])
  })])
}
