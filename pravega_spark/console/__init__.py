"""What the command line and the jobs share: arguments, output, progress, and how a program ends when it fails."""
