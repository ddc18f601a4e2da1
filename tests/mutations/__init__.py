"""Mistakes that somebody could make in the package, and for each the test on real servers that finds it.

A suite that nothing can fail proves nothing. Each mutation is made in a copy of the package, and the test that is named
beside it must fail there. `make mutations` runs all of them; `make test` two, drawn by the seed.
"""
