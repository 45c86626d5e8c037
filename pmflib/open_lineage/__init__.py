"""Events of the OpenLineage specification: which run read and wrote which version of which dataset."""
