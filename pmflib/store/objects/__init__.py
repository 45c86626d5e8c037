"""Object stores: named objects in a local folder or in a bucket."""
