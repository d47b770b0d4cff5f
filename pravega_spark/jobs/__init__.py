"""Maintenance jobs: run by `python -m`, by `spark-submit`, or as functions in a notebook.

All of them may be repeated, and run at the same time as everything else.
"""
