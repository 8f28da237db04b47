"""Preset `default`: rival closed-form experts, weighted by evidence (docs/ENGINE.md)."""
