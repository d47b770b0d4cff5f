"""The operations of a log carried out on a state, a module for each subject; `change` puts them together."""
