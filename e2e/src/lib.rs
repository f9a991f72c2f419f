//! End-to-end tests: real binaries, real clients, a real cluster.
