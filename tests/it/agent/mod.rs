//! Tests of the agent against a hub; the test simulates the signer and the gateway.

mod distrust;
mod gateway;
mod health;
mod keeping;
mod parts;
mod program;
mod proxied;
mod refusals;
mod revocation;
