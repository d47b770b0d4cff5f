"""What operators call: verification, inspection, garbage collection, backups, segments in RollingStorage's layout."""
