"""The tuning service: studies over HTTP, stored as an append-only event log (extra `serve`; docs/SERVICE.md)."""
