"""What proves the engine: a model of segments, a checker of histories, a simulated root, the contracts of its parts."""
