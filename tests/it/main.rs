//! Integration tests: one binary, real sockets on port 0, on the embedded hub or on a real API server.

// Helpers in it may unwrap and index as tests may.
#[cfg(test)]
mod requests;
