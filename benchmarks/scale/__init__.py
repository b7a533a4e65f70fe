"""Whether costs stay flat as the frontier grows."""
