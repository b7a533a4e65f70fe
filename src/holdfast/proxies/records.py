"""Proxies and the pools of domains."""
