"""Tables with a row for every sample of a dataset or of files of any size: made in parts, with accounts of the rows."""
