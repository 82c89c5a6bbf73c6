recursors = ["127.0.0.1:2"]
services {
  name = "three"
}
