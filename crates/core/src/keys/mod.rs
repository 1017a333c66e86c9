//! Keys: private keys, which sign and are wiped; kinds of public keys, and the check for weak ones.

pub mod private;
pub mod public;
