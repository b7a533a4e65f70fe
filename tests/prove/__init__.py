"""The full proofs behind `make prove`: hundreds of faults on real crawls, and what they left."""
