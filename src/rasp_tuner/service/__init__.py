"""The tuning service: studies over HTTP, with an append-only log that is the truth (extra `serve`; docs/SERVICE.md)."""
