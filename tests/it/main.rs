//! Integration tests: one binary, real sockets on port 0, on the embedded hub or on a real API server.

mod deploy;
