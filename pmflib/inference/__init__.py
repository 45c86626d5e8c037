"""What is said of any fit: errors, tests of fit, three steps, targets, imputation, planning."""
