"""`python -m pravega_spark.cli`."""

from pravega_spark.cli.main import main

if __name__ == "__main__":
    main()
