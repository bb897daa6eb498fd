"""``anabranch doctor``: one module for each thing that it checks."""
