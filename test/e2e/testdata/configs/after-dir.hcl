log_level = "WARN"
