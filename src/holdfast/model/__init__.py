"""Values: what a URL, a domain, a claim is. Pure, no input or output."""
