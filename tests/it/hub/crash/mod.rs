//! A hub that is killed by SIGKILL, wherever it stands: no certificate without a row of the ledger, and no request with
//! two (invariant I13).

pub(super) mod books;
mod boundaries;
mod file;
mod frozen;
mod kit;
mod load;
mod moments;
mod revoked;
