"""The HTTP API: routes that check permissions and call the services of `control`."""
