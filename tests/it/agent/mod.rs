//! Tests of the agent against a hub; the test simulates the signer and the gateway.

mod keeping;
mod parts;
mod program;
mod refusals;
mod revocation;
