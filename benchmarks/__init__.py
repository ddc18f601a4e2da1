"""Measurements, as ratios to a consumer written by hand in the same run. Never asserted in a test."""
