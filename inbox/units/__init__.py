"""What the unit of work of every SQL store is made of: who may use it, what a handler sees, how it is judged.

Stores that reach their database by SQLAlchemy share it; what a driver's own commands mean stays with each adapter.
"""
