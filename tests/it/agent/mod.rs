//! Tests of the agent against a hub; the test simulates the signer and the gateway.

mod distrust;
mod gateway;
mod health;
mod hinted;
mod keeping;
mod on_renew;
mod parts;
mod program;
mod proxied;
mod ready;
mod refusals;
mod revocation;
