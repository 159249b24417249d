"""Metadata for subscribers: MetadataService, the same in the controller and in every data node."""
