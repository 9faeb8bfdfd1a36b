"""What commands and Spark jobs share: their errors and warnings, texts for people, files that flags name, Java programs."""
