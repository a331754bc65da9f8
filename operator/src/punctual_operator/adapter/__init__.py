"""The metrics adapter: answers `external.metrics.k8s.io` with what the gateways measure."""
