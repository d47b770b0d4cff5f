"""Breakages of columns that are decoded from events (X7)."""

from tests.planted import Breakage

JSON = "pravega_spark/streams/values/json_decoding.py"
AVRO = "pravega_spark/streams/values/avro.py"
RETYPING = "pravega_spark/streams/values/retyping.py"

BREAKAGES = [
    Breakage(
        name="as-many-values-as-events-is-not-checked",
        file=JSON,
        old="            if len(self.schema) and table.num_rows != len(events):\n",
        new="            if len(self.schema) and table.num_rows < len(events):\n",
        tests=["tests/streams/test_json_values.py"],
    ),
    Breakage(
        name="an-event-may-end-within-a-value",
        file=JSON,
        old=""" or (data[bounds[1:] - 2] != ord("}")).any():""",
        new=":",
        tests=["tests/streams/test_json_values.py"],
    ),
    Breakage(
        name="a-datum-may-end-before-its-event",
        file=AVRO,
        old="                    whole = source.tell() == len(event)\n",
        new="                    whole = True\n",
        tests=["tests/streams/test_avro_values.py"],
    ),
    Breakage(
        name="a-malformed-datum-is-left-out",
        file=AVRO,
        old="            found.append(datum)\n",
        new="            if datum is not None or event is None:\n                found.append(datum)\n",
        tests=["tests/streams/test_avro_values.py"],
    ),
    Breakage(
        name="lists-begin-where-their-column-was-cut",
        file=RETYPING,
        old="    if column.offset:\n        column = pa.concat_arrays([column.slice(0, 0), column])\n",
        new="",
        tests=["tests/streams/test_retyping.py"],
    ),
    Breakage(
        name="a-null-has-the-row-of-its-item",
        file=RETYPING,
        old="raise MalformedValue(row, error.reason, error.forbidden_null) from None",
        new="raise",
        tests=["tests/streams/test_retyping.py"],
    ),
]
