"""Files, progress and memory: what every layer may use."""
