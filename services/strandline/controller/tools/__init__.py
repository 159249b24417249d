"""An administrator's commands for a controller's store: backup, restore, recovery, migration."""
