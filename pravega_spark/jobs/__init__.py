"""Maintenance jobs: run by `python -m`, by `spark-submit`, or as functions in a notebook.

All of them may be repeated, and may run while other processes use the root.
"""
