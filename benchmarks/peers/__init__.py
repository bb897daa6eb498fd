"""Programs for other systems. Each runs by its path, in the environment of its system.

They share nothing with the rest of the package, which is not installed there: a specification in
JSON comes in, an outcome in JSON goes out.
"""
