"""The Spark data source: options, batch and micro-batch readers, the sink."""
