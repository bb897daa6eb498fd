"""SQL that can be understood without Spark, and the port to Spark for the rest."""
