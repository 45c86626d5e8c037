"""What keeps a store in order: verification, collection of garbage, copies, exports."""
