"""The edge: connections to realtime servers."""
