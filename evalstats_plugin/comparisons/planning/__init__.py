"""Power analysis: what a pilot tells of differences, and how many items they need."""
