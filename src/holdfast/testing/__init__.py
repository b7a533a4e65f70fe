"""Tools for testing Holdfast, also for its users: a simulated web, misbehaving proxies, and fault injection."""
