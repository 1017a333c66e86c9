//! The agent against a hub, with the signer and the gateway played by the test.

mod keeping;
mod parts;
mod program;
mod refusals;
mod revocation;
