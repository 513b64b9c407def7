"""Clock, disk, sockets, processes and engines: what the core must not touch."""
