//! Integration tests: one binary, real sockets on port 0, on the embedded hub or on a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod deploy;
mod gateway;
mod ocm_types;
mod real_parts;
mod support;
mod test_hub;
