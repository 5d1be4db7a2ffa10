//! The host: page cache, devices, control groups, processes, sockets.
