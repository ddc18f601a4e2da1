"""`inbox demo`: workers are killed with SIGKILL again and again, and then the database is counted.

What is expected is computed from what was published alone, what is found is read from the database alone; nothing that
a worker says of itself decides.
"""
