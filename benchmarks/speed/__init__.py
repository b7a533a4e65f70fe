"""Pages per second, CPU, memory and disk of Holdfast and its peers, on one site in one run."""
