"""HTTP: routes, keys, limits, the OpenAPI document."""
