"""etcd's messages as generated from protos/strandline/etcd/v1; nothing in here but this file is written by hand."""
