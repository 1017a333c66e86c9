//! addon-signer.
fn main() {}
