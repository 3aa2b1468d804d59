"""Rankings from comparisons: Bradley–Terry, Thurstone, and which comparison to ask next.

Arrays in, numbers out. Only what draws Pólya–Gamma numbers or runs on a GPU imports torch.
"""
