//! Keys: private ones, which sign and are wiped; kinds of public ones, and which are known to be weak.

pub mod private;
pub mod public;
