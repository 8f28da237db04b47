"""What all pages of measured figures share: their tables as CSV files, and which engine they were measured with."""
