"""What proves the engine: a model of segments, a simulated root, and the contracts of its parts."""
