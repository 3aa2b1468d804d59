"""A folder for a paper, and the sentences on what was done."""
