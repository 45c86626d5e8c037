"""Files of SPSS, Stata and SAS, read and written."""
