"""Jobs that take care of streams: run by `python -m`, by `spark-submit`, or as functions in a notebook.

All of them may run twice, and at the same time as everything else.
"""
