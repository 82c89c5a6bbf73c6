# HTTPS beside HTTP, with the names of tls{}.
server           = true
bootstrap_expect = 1
data_dir         = "/opt/consul"
bind_addr        = "127.0.0.1"
ports {
  https = 8501
}
tls {
  defaults {
    ca_file         = "ca.pem"
    cert_file       = "cert.pem"
    key_file        = "key.pem"
    verify_incoming = true
    verify_outgoing = true
    tls_min_version = "TLSv1_2"
  }
  internal_rpc {
    verify_server_hostname = true
  }
  https {
    verify_incoming = false
  }
}
