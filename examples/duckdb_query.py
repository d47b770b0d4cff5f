"""DuckDB: write the result of a query to a stream as one commit, and query a stream that need not fit in memory."""

import tempfile

import duckdb

from pravega_spark import StreamManager


def run(root: str) -> list[tuple[str, int]]:
    """Write 100,000 orders, and sum up the amounts of each user."""
    with StreamManager(root) as manager:
        manager.create_scope("examples")
        manager.create_stream("examples", "orders", 2)

        orders = duckdb.sql("""
            SELECT json_object('user', 'user-' || n % 3, 'amount', n % 10)::VARCHAR AS event,
                   'user-' || n % 3 AS routing_key
            FROM range(100_000) AS numbers(n)
        """)
        manager.write_events("examples", "orders", orders)  # all of them, or none

        with duckdb.connect() as database:  # which reads batches while it runs the query
            database.register("events", manager.read_events("examples", "orders").to_batches(["event"]))
            return database.sql("""
                SELECT decode(event)::JSON ->> 'user' AS name,
                       sum((decode(event)::JSON ->> 'amount')::INT)::INT AS amount
                FROM events GROUP BY name ORDER BY name
            """).fetchall()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(run(folder))
