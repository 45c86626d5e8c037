"""Progress of what takes long: who reports it, who listens, and how it is drawn in terminals, notebooks and logs."""
