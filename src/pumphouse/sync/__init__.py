"""Sync twins of `Sink` and `LeaseTransport`, over one shared portal thread."""
