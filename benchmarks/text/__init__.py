"""Extraction of main content beside other extractors, on real pages; and the fitting of the model."""
