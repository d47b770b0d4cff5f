"""What operators call: checks, inspection, orphans."""
