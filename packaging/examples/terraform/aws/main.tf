# Three servers in three zones of a VPC that you have, with disks that outlive their instances. Agents take
# module.bootstrap.agent as user data in your own launch templates, with the security group corbel-agents.
#
# terraform init && terraform apply

terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "vpc_id" { type = string }

variable "subnets" {
  description = "Subnet and a free address in it for each server, each in another zone"
  type        = list(object({ id = string, zone = string, address = string }))
}

variable "ami" {
  description = "Image of Debian 12 or later, for the architecture of instance_type"
  type        = string
}

variable "instance_type" {
  description = "docs/sizing.md says what a server needs. Not a burstable type: a server without credits misses heartbeats"
  type        = string
  default     = "m7i.large"
}

variable "package_url" { type = string }
variable "package_sha256" { type = string }

variable "encrypt" {
  type      = string
  sensitive = true
}

variable "pki" {
  description = "Folder with what `corbel tls ca create` and `corbel tls cert create -server` made"
  type        = string
  default     = "pki"
}

module "bootstrap" {
  source         = "../bootstrap"
  servers        = var.subnets[*].address
  package_url    = var.package_url
  package_sha256 = var.package_sha256
  encrypt        = var.encrypt
  ca             = file("${var.pki}/consul-agent-ca.pem")
  certs          = [for i in range(length(var.subnets)) : file("${var.pki}/dc1-server-consul-${i}.pem")]
  keys           = [for i in range(length(var.subnets)) : file("${var.pki}/dc1-server-consul-${i}-key.pem")]
  data_device    = "/dev/nvme1n1"
}

resource "aws_security_group" "servers" {
  name   = "corbel-servers"
  vpc_id = var.vpc_id
}

resource "aws_security_group" "agents" {
  name   = "corbel-agents"
  vpc_id = var.vpc_id
}

locals {
  # Who may reach what: RPC for all, gossip of servers and agents in both directions.
  rules = {
    rpc            = { to = aws_security_group.servers.id, from = aws_security_group.agents.id, port = 8300, protocol = "tcp" }
    rpc_servers    = { to = aws_security_group.servers.id, from = aws_security_group.servers.id, port = 8300, protocol = "tcp" }
    gossip_tcp     = { to = aws_security_group.servers.id, from = aws_security_group.agents.id, port = 8301, protocol = "tcp" }
    gossip_udp     = { to = aws_security_group.servers.id, from = aws_security_group.agents.id, port = 8301, protocol = "udp" }
    servers_tcp    = { to = aws_security_group.servers.id, from = aws_security_group.servers.id, port = 8301, protocol = "tcp" }
    servers_udp    = { to = aws_security_group.servers.id, from = aws_security_group.servers.id, port = 8301, protocol = "udp" }
    to_agents_tcp  = { to = aws_security_group.agents.id, from = aws_security_group.servers.id, port = 8301, protocol = "tcp" }
    to_agents_udp  = { to = aws_security_group.agents.id, from = aws_security_group.servers.id, port = 8301, protocol = "udp" }
    among_them_tcp = { to = aws_security_group.agents.id, from = aws_security_group.agents.id, port = 8301, protocol = "tcp" }
    among_them_udp = { to = aws_security_group.agents.id, from = aws_security_group.agents.id, port = 8301, protocol = "udp" }
  }
}

resource "aws_vpc_security_group_ingress_rule" "corbel" {
  for_each                     = local.rules
  security_group_id            = each.value.to
  referenced_security_group_id = each.value.from
  from_port                    = each.value.port
  to_port                      = each.value.port
  ip_protocol                  = each.value.protocol
}

resource "aws_vpc_security_group_egress_rule" "all" {
  for_each          = { servers = aws_security_group.servers.id, agents = aws_security_group.agents.id }
  security_group_id = each.value
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

# Each write waits for an fsync, so latency counts: gp3 is enough up to what docs/sizing.md says of disk IOPS, io2 beyond.
resource "aws_ebs_volume" "state" {
  count             = length(var.subnets)
  availability_zone = var.subnets[count.index].zone
  type              = "gp3"
  size              = 50
  iops              = 6000
  throughput        = 250
  encrypted         = true
  tags              = { Name = "corbel-${count.index}" }
  lifecycle { prevent_destroy = true }
}

resource "aws_instance" "server" {
  count                  = length(var.subnets)
  ami                    = var.ami
  instance_type          = var.instance_type
  subnet_id              = var.subnets[count.index].id
  private_ip             = var.subnets[count.index].address
  vpc_security_group_ids = [aws_security_group.servers.id]
  user_data              = module.bootstrap.servers[count.index]
  tags                   = { Name = "corbel-${count.index}" }
  metadata_options { http_tokens = "required" }
}

resource "aws_volume_attachment" "state" {
  count       = length(var.subnets)
  device_name = "/dev/sdf"
  volume_id   = aws_ebs_volume.state[count.index].id
  instance_id = aws_instance.server[count.index].id
}

output "agent_user_data" {
  value     = module.bootstrap.agent
  sensitive = true
}

output "agent_security_group" { value = aws_security_group.agents.id }
