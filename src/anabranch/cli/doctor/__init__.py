"""``anabranch doctor``: one module for each area that it checks."""
