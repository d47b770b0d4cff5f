"""Fuzzing of every parser of what is stored or given: any bytes are understood, or refused with a declared error.

`parsers` is the table of them, each with samples that the real encoders made. `mutators` changes samples: raw bytes,
or the structure within, around which a valid checksum is put again. `python -m tests.fuzz PARSER [COUNT] [SEED]` runs
one of them by itself and tells how much memory it took.
"""
