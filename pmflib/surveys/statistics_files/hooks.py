"""What files of SPSS, Stata and SAS add to the core: readers by format, and writers by suffix."""

HOOKS = {
    "readers": {
        format: "pmflib.surveys.statistics_files.statistics_files:READER"
        for format in ("sav", "dta", "sas7bdat", "por", "xpt")
    },
    "writers": {
        suffix: "pmflib.surveys.statistics_files.statistics_output:WRITER"
        for suffix in (".sav", ".zsav", ".dta")
    },
}
