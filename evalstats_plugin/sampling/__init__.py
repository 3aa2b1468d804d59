"""What model packages share: where to compute, random numbers, whether chains agree."""
