"""The server of `pravega-spark serve`: the REST API of Pravega's controller, and pages for people, over one root."""
