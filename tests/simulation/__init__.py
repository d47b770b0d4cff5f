"""Everything simulated: hosts with clocks and faults, and a population of actors that use the real code.

One seed decides all of a history. `python -m tests.simulation` (`make sim`) runs many seeds; docs/simulation.md
describes what is simulated and what is checked.
"""
