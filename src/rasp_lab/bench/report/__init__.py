"""Numbers as tables, figures and pages."""
