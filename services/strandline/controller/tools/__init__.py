"""What an administrator does to a controller's store while no controller runs on it."""
