"""The edge: spans and metrics through OpenTelemetry."""
