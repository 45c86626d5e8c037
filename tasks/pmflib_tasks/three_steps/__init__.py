"""Relations of classes in stored samples."""
