"""What tuning is worth beside the default: the one estimate, and savings added up."""
