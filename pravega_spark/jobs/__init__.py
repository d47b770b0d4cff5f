"""Work on stored data that is done by jobs, spread over a cluster when there is much of it."""
