"""What is about survey data: drafts, files of statistics programs, designs, known margins, sites."""
