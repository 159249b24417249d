"""Commands for this machine: processes, files, certificates, profiles."""
