"""Hours of what a worker may meet, in minutes: kills, cuts, restarts and duplicates under a steady load, and an audit.

`make soak MINUTES=N`, or `python -m tests.soak`.
"""
