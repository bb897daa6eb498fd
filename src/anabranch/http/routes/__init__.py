"""The calls that the application answers, one module for each group of them."""
