"""Commands about what is on this machine: processes, files, certificates, profiles."""
