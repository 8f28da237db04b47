"""What people see of a tuner: its history as a table, pictures, and a page that needs no network."""
