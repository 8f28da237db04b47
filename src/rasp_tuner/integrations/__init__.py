"""Adapters: a tuner behind the interfaces of other libraries. Each needs an extra of its own, and no other room."""
