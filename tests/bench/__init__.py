"""`make bench`: what the project costs, as ratios to ceilings that are measured in the same run.

Absolute times mean nothing on shared machines, so nothing here asserts. Run one part with `python -m tests.bench PART`.
"""
